# SPDX-License-Identifier: Apache-2.0
# Guide 000: training with parameter servers. Flags, TF_CONFIG, RunConfig, the strategy and train_and_evaluate are the guide's;
# model_fn and input_fn are written with Trireme's layers.
#
#     python guide_000.py --job_name=ps --task_index=0
#     python guide_000.py --job_name=worker --task_index=0
#     python guide_000.py --job_name=worker --task_index=1
#     python guide_000.py                                        without a job: one process
import argparse
import json
import os

import trireme as tf

flags = argparse.ArgumentParser()
flags.add_argument('--ps_hosts', default='127.0.0.1:2222')
flags.add_argument('--worker_hosts', default='127.0.0.1:2223, 127.0.0.1:2224')
flags.add_argument('--evaluator_hosts', default='')
flags.add_argument('--job_name', default='', help="One of 'ps', 'worker', 'evaluator', chief")
flags.add_argument('--task_index', type=int, default=0, help='Index of task within the job')
flags.add_argument('--model_dir', default=None)
flags.add_argument('--max_steps', type=int, default=12)
flags.add_argument('--batch_size', type=int, default=20)
flags.add_argument('--mode', default='async')
FLAGS = flags.parse_args()

ps_hosts = FLAGS.ps_hosts.split(',')
worker_hosts = FLAGS.worker_hosts.split(',')
evaluator_hosts = FLAGS.evaluator_hosts.split(',')
task_index = FLAGS.task_index
job_name = FLAGS.job_name

if job_name:
    os.environ['TF_CONFIG'] = json.dumps({
        'cluster': {
            # 'chief': chief_hosts, # Optional
            'worker': worker_hosts,
            'ps': ps_hosts,
            **({'evaluator': evaluator_hosts} if FLAGS.evaluator_hosts else {}),  # Not required if evaluation is not performed
        },
        'task': {'type': job_name, 'index': task_index}
    })


def model_fn(mode, params):
    class LeNet(tf.nn.Module):
        def __init__(self):
            self.conv1, self.conv2 = tf.nn.Conv2d(3, 6, 5), tf.nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2, self.fc3 = tf.nn.Linear(400, 120), tf.nn.Linear(120, 84), tf.nn.Linear(84, 10)

        def forward(self, image):
            x = tf.ops.max_pool(tf.ops.relu(self.conv1(image)), kernel=2)
            x = tf.ops.max_pool(tf.ops.relu(self.conv2(x)), kernel=2).flatten()
            return self.fc3(tf.ops.relu(self.fc2(tf.ops.relu(self.fc1(x)))))

    return tf.EstimatorSpec(network=params['network'] or LeNet(), optimizer={'kind': 'momentum', 'momentum': 0.9}, learning_rate=0.01)


def input_fn(context):
    data = tf.Dataset.open('synth', context.mode, FLAGS.batch_size, seed=context.seed, shapes={'train_count': 1000, 'test_count': 200})
    return data.shard(context.num_input_pipelines, context.input_pipeline_id, 'wrap' if context.mode == 'train' else 'pad')


strategy = tf.ParameterServerStrategy(mode=FLAGS.mode)

run_config = tf.RunConfig(
    model_dir=FLAGS.model_dir,
    session_config=None,
    keep_checkpoint_max=5,
    save_summary_steps=1,
    log_step_count_steps=1,
    save_checkpoints_steps=100,
    enable_data_pre_proc=True,
    mix_compile_mode=True,
    iterations_per_loop=1,
    precision_mode='force_fp32',
    distribute=strategy)

classifier = tf.Estimator(
    model_fn=model_fn,
    params={'network': os.environ.get('GUIDE_000_NETWORK')},
    config=run_config)

result = tf.train_and_evaluate(
    classifier,
    tf.TrainSpec(input_fn=input_fn, max_steps=FLAGS.max_steps),
    tf.EvalSpec(input_fn=input_fn, start_delay_secs=tf._c.TRM_NONE, throttle_secs=tf._c.TRM_NONE))
print(result['role'], 'step', result['global_step'])
