#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of null_arguments_test: each public function and how to call it with one NULL.

Usage: null_arguments.py INCLUDE_FOLDER OUTPUT

Reads the prototypes of the headers, so that a new public function is tested without an entry anywhere. A pointer that its
documentation calls optional stands in OPTIONAL; a function that ends something takes NULL, as do all `destroy`s.
"""
import glob
import os
import re
import sys

# Pointers that may be NULL, by function, as the headers say. '*': every pointer of the function.
OPTIONAL = {
    'trm_elastic_create': 'options',
    'trm_elastic_recover': 'cause',
    'trm_log_set_sink': '*', 'trm_free': '*', 'trm_error_exit': '*',  # trm_error_exit does not return
    'trm_cluster_from_env': 'flags lookup context', 'trm_cluster_create': 'flags', 'trm_cluster_join': 'options',
    'trm_comm_abort': 'cause', 'trm_comm_check': 'options', 'trm_comm_create': 'options', 'trm_comm_free_shared': 'memory',
    'trm_context_resolve': 'comm', 'trm_dataset_transform': 'context',
    'trm_dataset_shapes': 'options', 'trm_shapes_write': 'options', 'trm_dataset_click_file': 'options', 'trm_vocabulary_build': 'options',
    'trm_dataset_tokens': 'options', 'trm_dataset_text': 'options', 'trm_dataset_json_lines': 'options',
    'trm_dataset_clicks': 'options', 'trm_dataset_random_clicks': 'options', 'trm_clicks_measure': 'options',
    'trm_distribute_begin': 'flags', 'trm_distribute_over': 'comm', 'trm_distribute_rank': '*',
    'trm_distribute_size': '*', 'trm_distribute_comm': 'ranks', 'trm_distribute_broadcast': 'ranks',
    'trm_distribute_all_reduce': 'ranks', 'trm_distribute_shard_and_rebatch': 'ranks dataset',
    'trm_distribute_shard_arrays': 'ranks',
    'trm_estimator_create': 'params', 'trm_train_and_evaluate': 'train eval out',  # train: a server needs none
   
    'trm_meter_get_peaks': 'median best', 'trm_exec_profile': 'options',
    'trm_language_build': 'options', 'trm_language_loss': 'options',
    'trm_generator_choose': 'sampling', 'trm_mixture_of_experts': 'load_balance',
    'trm_graph_create': 'options', 'trm_batch_norm': 'options', 'trm_conv2d': 'options',
    'trm_attention': 'options', 'trm_attention_packed': 'options', 'trm_linear_cross_entropy': 'options',
    'trm_mixture_of_experts': 'load_balance',
    'trm_softmax_cross_entropy': 'options', 'trm_network_build': 'options', 'trm_vit': 'options',
    'trm_loss_softmax': 'context', 'trm_loss_softmax_expand': 'context', 'trm_loss_logistic': 'context',
    'trm_planner_share': 'planner',
    'trm_planner_plan': 'about', 'trm_plan_read': 'text', 'trm_planner_run': 'comm',
    'trm_planner_compare': 'comm', 'trm_ps_row': 'info values slots', 'trm_ps_audit_row': 'info values slots writers writer_count',
    'trm_ps_folder_row': 'info values slots', 'trm_ps_push': 'options', 'trm_ps_checkpoint': 'result',
    'trm_ps_place': 'partition', 'trm_ps_batch_add': 'rows gradients',
    'trm_pool_rows_gradient': 'd_weights', 'trm_ps_folder_each': 'context',
    'trm_safetensors_write': 'metadata', 'trm_checkpoint_writer_open': 'options', 'trm_checkpoint_open': 'options',
    'trm_events_open': 'options', 'trm_metrics_write': 'event', 'trm_metrics_open': 'options', 'trm_inspect': 'options context',
    'trm_model_graph': 'logits', 'trm_model_predict': 'context out',
    'trm_event_members': 'mean text', 'trm_record_open': 'role', 'trm_model_load': 'skipped', 'trm_model_save': 'writer',
}
# The value that a function returns for NULL, if it is not zero.
ANSWERS = {'trm_exec_find': '-1', 'trm_tokenizer_find': '-1', 'trm_tokenizer_end': '-1', 'trm_tokenizer_begin': '-1', 'trm_generator_choose': '-1', 'trm_shape_count': '-1', 'trm_tensor_bytes': '-1', 'trm_comm_size': '1',
           'trm_comm_local_size': '1', 'trm_request_test': 'true'}
# Functions that end something: NULL is nothing to end, thus no error.
ENDS = re.compile(r'_(destroy|close|free|leave|end)$')
# With options of zeros these do what their documentation promises, for a long time.
WORKS = {'trm_shapes_write'}
PROTOTYPE = re.compile(r'TRM_API\s+((?:TRM_MUST_USE|TRM_NO_RETURN)\s+)?([\w\s*]*?)\b(trm_\w+)\s*\(')


def split_arguments(text):
    """The arguments of a prototype, cut at its outer commas."""
    parts, level, begin = [], 0, 0
    for at, char in enumerate(text):
        level += {'(': 1, ')': -1}.get(char, 0)
        if char == ',' and level == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [' '.join(p.split()) for p in parts + [text[begin:]]]


def argument(text):
    """(type as a cast, name) of one argument."""
    function = re.match(r'(.*)\(\*(\w+)\)\((.*)\)$', text)
    if function:
        return function.group(1) + '(*)(' + function.group(3) + ')', function.group(2)
    array = re.match(r'(.*?)(\w+)\[\w*\]$', text)
    if array:
        return array.group(1).strip() + ' *', array.group(2)
    plain = re.match(r'(.*?)(\w+)$', text)
    return plain.group(1).strip(), plain.group(2)


def prototypes(headers):
    """All public functions: (return type, name, [(type, name)]), and the names of function types and of structs."""
    functions, callbacks, structs = [], set(), set()
    for path in headers:
        text = re.sub(r'/\*.*?\*/|//[^\n]*', ' ', open(path).read(), flags=re.S)
        callbacks |= set(re.findall(r'typedef [\w\s*]*?\(\*(\w+)\)', text))
        structs |= set(re.findall(r'typedef struct (\w+) \{', text))
        for m in PROTOTYPE.finditer(text):
            end, depth = m.end(), 1
            while depth:
                depth += {'(': 1, ')': -1}.get(text[end], 0)
                end += 1
            parts = [p for p in split_arguments(text[m.end():end - 1]) if p not in ('void', '', '...')]
            functions.append((m.group(2).strip(), m.group(3), [argument(p) for p in parts]))
    return functions, callbacks, structs


def passed(index, kind, name, callbacks):
    """The expression for one argument; index: its number among the pointers, None for a value."""
    if name == 'err' and kind == 'trm_error *':
        return 'c->err'
    if kind in callbacks or '(*)' in kind:
        return f'c->absent == {index} ? ({kind})NULL : ({kind})any_function'
    if '*' not in kind:
        return f'({kind}){{c->plain}}'
    if kind == 'trm_graph *':
        return f'c->absent == {index} ? NULL : c->graph'
    pointer = 'c->path' if kind == 'const char *' else 'c->zeros'
    return f'c->absent == {index} ? NULL : ({kind}){pointer}'


def main():
    headers = sorted(glob.glob(os.path.join(sys.argv[1], 'trireme', '*.h')))
    functions, callbacks, structs = prototypes(headers)
    known = {name for _, name, _ in functions}
    stale = [f for f in list(OPTIONAL) + list(ANSWERS) if f not in known]
    calls, rows, count = [], [], 0
    for result, name, arguments in functions:
        pointers = [(k, n) for k, n in arguments
                    if ('*' in k or k in callbacks) and (k, n) != ('trm_error *', 'err')]
        optional = OPTIONAL.get(name, '').split()
        if optional != ['*']:
            stale += [f'{name}: {o}' for o in optional if o not in [n for _, n in pointers]]
        if not pointers or name == 'trm_error_exit':
            continue
        index = {n: i for i, (_, n) in enumerate(pointers)}
        call = f'{name}({", ".join(passed(index.get(n), k, n, callbacks) for k, n in arguments)})'
        calls.append(f'static void call_{name}(null_call *c) {{')
        if result == 'void':
            calls.append(f'    {call};\n    (void)c;\n}}')
        elif result == 'trm_status':
            calls.append(f'    c->status = {call};\n}}')
        else:
            calls.append(f'    {result} got = {call};')
            if result == 'trm_callback':  # it makes the training fail
                calls.append('    c->differs = got.on_begin == NULL || got.on_begin(got.context, NULL, NULL) != TRM_INVALID;\n}')
            else:
                calls.append(f'    {result} expected = ({result}){{{ANSWERS.get(name, 0)}}};')
                calls.append('    c->differs = memcmp(&got, &expected, sizeof got) != 0;\n}')
        asked = [i for i, (_, n) in enumerate(pointers) if optional != ['*'] and n not in optional]
        kind = 'ENDS' if ENDS.search(name) else 'STATUS' if result == 'trm_status' else 'VALUE'
        has_error = ('trm_error *', 'err') in arguments
        graph = any(k == 'trm_graph *' for k, _ in pointers)
        # Options with all members zero can be tried where no argument is an object that only the library can make.
        made = [re.sub(r'\bconst\b|\*', '', k).strip() for k, _ in pointers]
        zeros = (kind == 'STATUS' and has_error and name not in WORKS and
                 any(k.count('*') == 1 and k.startswith('const ') and m in structs for (k, _), m in zip(pointers, made)) and
                 all(k.count('*') == 2 or k in callbacks or m in structs or m in ('char', 'void') or k.count('*') == 1 and not m.startswith('trm_')
                     for (k, _), m in zip(pointers, made)))
        names = ', '.join(f'"{n}"' for _, n in pointers)
        listed = ', '.join(str(i) for i in asked + [-1])
        flags = ', '.join('true' if f else 'false' for f in (has_error, graph, zeros))
        rows.append(f'    {{"{name}", call_{name}, {kind}, {flags}, (const char *const[]){{{names}}}, (const int[]){{{listed}}}}},')
        count += len(asked)
    if stale:
        sys.exit(f'null_arguments.py: no such functions or pointers: {", ".join(stale)}; correct the tables')
    with open(sys.argv[2], 'w') as out:
        out.write('/* Written by tests/null_arguments.py: %d functions, %d pointers. */\n' % (len(rows), count))
        out.write('\n'.join(f'#include "trireme/{os.path.basename(h)}"' for h in headers) + '\n\n')
        out.write('\n'.join(calls) + '\n\nstatic const null_row null_rows[] = {\n' + '\n'.join(rows) + '\n};\n')


if __name__ == '__main__':
    main()
