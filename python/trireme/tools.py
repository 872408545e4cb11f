# SPDX-License-Identifier: Apache-2.0
"""Smaller parts: tokenizers, weights of other programs, this machine, the log."""
import ctypes
from ctypes import byref

from . import _c
from ._call import Freed, call, filled, take, text_of
from ._convert import array_at, as_dict, converted, enum, expect, np, options, takes, text, view, word
from ._methods import TokenizerMethods


class Tokenizer(TokenizerMethods, Freed):
    """Byte-level BPE, bytes, or characters; ids are those of Hugging Face's tokenizers."""

    free = 'trm_tokenizer_destroy'

    def __init__(self, path=None, handle=None):
        """Reads a tokenizer.json, or a folder with one (or with vocab.json and merges.txt); None: 256 tokens, the bytes."""
        self.handle = handle or (take(_c.trm_tokenizer_bytes) if path is None else take(_c.trm_tokenizer_open, text(path)))

    @classmethod
    @takes(_c.trm_tokenizer_options)
    def train(cls, paths, vocabulary, **more):
        """Learns byte-level BPE from text files; more: min_count, special_tokens."""
        keep = []
        paths = [paths] if isinstance(paths, (str, bytes)) or hasattr(paths, '__fspath__') else list(paths)
        expect(paths and None not in paths, 'Tokenizer.train', 'text files', paths)
        return cls(handle=take(_c.trm_tokenizer_train, (ctypes.c_char_p * len(paths))(*[text(p) for p in paths]), len(paths),
                               byref(options(_c.trm_tokenizer_options, dict(more, vocabulary=vocabulary), keep))))

    def __len__(self):
        return _c.trm_tokenizer_vocabulary(self.handle)

    def encode(self, words):
        """The ids of a text as an int32 array."""
        expect(isinstance(words, (str, bytes)), 'Tokenizer.encode', 'a text', words)
        data, tokens = words.encode('utf-8', 'surrogateescape') if isinstance(words, str) else words, _c.trm_tokens()
        try:
            call(_c.trm_tokenizer_encode, self.handle, data, len(data), byref(tokens))
            return array_at(tokens.ids, _c.TRM_INT32, tokens.count).copy()
        finally:
            _c.trm_tokens_free(byref(tokens))

    def decode(self, ids):
        """The text of ids."""
        ids = converted(np.ravel(ids) if np.size(ids) else np.empty(0, 'int32'), _c.TRM_INT32, 'Tokenizer.decode: ids')
        out, bytes_ = ctypes.c_void_p(), ctypes.c_size_t()
        call(_c.trm_tokenizer_decode, self.handle, ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), len(ids), byref(out), byref(bytes_))
        return text_of(out.value, bytes_.value)


def load_safetensors(path):
    """{name: array} of a .safetensors file, mapped and not copied (bfloat16 as uint16)."""
    file = Freed()
    file.handle, file.free = take(_c.trm_safetensors_open, text(path)), 'trm_safetensors_close'
    entries = (_c.trm_safetensors_at(file.handle, i)[0] for i in range(_c.trm_safetensors_count(file.handle)))
    return {entry.name.decode(): view(entry.tensor, file, True) for entry in entries}


def machine():
    """Hardware of this machine and features of the library, as a dictionary."""
    return as_dict(filled(_c.trm_machine, _c.trm_machine_get))


_sinks = []


def on_log(function, level='warn'):
    """Sends log lines up to `level` (error, warn, info, debug) to function(level, room, line); None drops them."""
    expect(function is None or callable(function), 'on_log', 'a function or None', function)
    sink = _c.trm_log_sink((lambda context, kind, room, line: function(word('trm_log_level', kind), room.decode(), line.decode('utf-8', 'replace')))
                           if function else 0)
    _sinks.append(sink)  # other threads may be inside the one before
    _c.trm_log_set_sink(sink, None, enum('trm_log_level', level))
