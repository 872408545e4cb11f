# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
"""The C library as its headers declare it: structs, enums, callbacks and functions for ctypes.

Functions are bound when they are first used; their docstrings are the comments of the headers.
"""
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof)

from ._library import bind, check_layout, library

lib = library()

TRM_VERSION_MAJOR = 0
TRM_VERSION_MINOR = 2
TRM_VERSION_PATCH = 0
TRM_MAX_RANK = 6
TRM_MAX_BATCH_FIELDS = 6
TRM_MAX_METRICS = 8
TRM_MAX_METRIC_SUMS = 16
TRM_MAX_CALLBACKS = 16
TRM_NONE = -1
TRM_ALL = 2147483647
TRM_TOKEN_BYTES = 32
TRM_NORM_LOCAL = 1
TRM_PEAK_SETS = 12
TRM_STALENESS_NONE = -1
TRM_PS_LAGS = 12
TRM_PS_WRITERS = 16
TRM_MAX_EXPORTERS = 8
TRM_COMPARED_PLANS = 8

# trm_status
TRM_OK = 0
TRM_END = 1
TRM_PENDING = 2
TRM_INVALID = -1
TRM_NOMEM = -2
TRM_IO = -3
TRM_CORRUPT = -4
TRM_UNSUPPORTED = -5
TRM_TIMEOUT = -6
TRM_PEER = -7
TRM_CANCELLED = -8
TRM_INTERNAL = -9
TRM_NOSPACE = -10
TRM_DIVERGED = -11

# trm_switch
TRM_DEFAULT = 0
TRM_ON = 1
TRM_OFF = 2

# trm_bag_pooling
TRM_BAG_SUM = 0
TRM_BAG_MEAN = 1
TRM_BAG_SQRT_N = 2

# trm_dtype
TRM_DTYPE_NONE = 0
TRM_FLOAT32 = 1
TRM_FLOAT64 = 2
TRM_BFLOAT16 = 3
TRM_FLOAT16 = 4
TRM_INT8 = 5
TRM_UINT8 = 6
TRM_INT32 = 7
TRM_INT64 = 8

# trm_log_level
TRM_LOG_ERROR = 0
TRM_LOG_WARN = 1
TRM_LOG_INFO = 2
TRM_LOG_DEBUG = 3

# trm_optimizer_kind
TRM_OPTIMIZER_DEFAULT = 0
TRM_SGD = 1
TRM_MOMENTUM = 2
TRM_ADAGRAD = 3
TRM_ROWWISE_ADAGRAD = 4
TRM_ADAM = 5
TRM_LAZY_ADAM = 6
TRM_FTRL = 7
TRM_NESTEROV = 8
TRM_LARS = 9

# trm_usage
TRM_USAGE_TRAIN = 0
TRM_USAGE_TEST = 1
TRM_USAGE_ALL = 2

# trm_resize_align
TRM_RESIZE_HALF_PIXEL = 0
TRM_RESIZE_ORIGINAL = 1
TRM_RESIZE_ANTIALIAS = 2

# trm_transform_kind
TRM_TRANSFORM_DECODE = 1
TRM_TRANSFORM_RANDOM_CROP = 2
TRM_TRANSFORM_RANDOM_RESIZED_CROP = 3
TRM_TRANSFORM_CENTER_CROP = 4
TRM_TRANSFORM_RANDOM_FLIP = 5
TRM_TRANSFORM_RESIZE = 6
TRM_TRANSFORM_RESIZE_SHORTER = 7
TRM_TRANSFORM_RESCALE = 8
TRM_TRANSFORM_NORMALIZE = 9
TRM_TRANSFORM_HWC2CHW = 10
TRM_TRANSFORM_TYPE_CAST = 11

# trm_shard_mode
TRM_SHARD_WRAP = 0
TRM_SHARD_DROP = 1
TRM_SHARD_PAD = 2

# trm_column_role
TRM_COLUMN_SKIP = 0
TRM_COLUMN_LABEL = 1
TRM_COLUMN_DENSE = 2
TRM_COLUMN_KEY = 3
TRM_COLUMN_BAG = 4

# trm_dense_form
TRM_DENSE_DEFAULT = 0
TRM_DENSE_RAW = 1
TRM_DENSE_LOG = 2

# trm_header_line
TRM_HEADER_AUTO = 0
TRM_HEADER_YES = 1
TRM_HEADER_NO = 2

# trm_role
TRM_ROLE_WORKER = 0
TRM_ROLE_CHIEF = 1
TRM_ROLE_PS = 2
TRM_ROLE_EVALUATOR = 3
TRM_ROLE_SCHEDULER = 4

# trm_rank_table_form
TRM_RANK_TABLE_GROUPS = 1
TRM_RANK_TABLE_TEMPLATE2 = 2
TRM_RANK_TABLE_V1 = 3
TRM_RANK_TABLE_V2 = 4

# trm_launch_stream
TRM_LAUNCH_OUT = 1
TRM_LAUNCH_ERR = 2
TRM_LAUNCH_NOTE = 3
TRM_LAUNCH_FAILURE = 4

# trm_reduction
TRM_REDUCTION_NONE = 0
TRM_REDUCTION_SUM = 1
TRM_REDUCTION_MEAN = 2
TRM_REDUCTION_PROD = 3
TRM_REDUCTION_MAX = 4
TRM_REDUCTION_MIN = 5

# trm_collective_kind
TRM_COLLECTIVE_NONE = 0
TRM_ALLREDUCE = 1
TRM_BROADCAST = 2
TRM_REDUCE = 3
TRM_ALLGATHER = 4
TRM_ALLGATHERV = 5
TRM_REDUCE_SCATTER = 6
TRM_REDUCE_SCATTERV = 7
TRM_SCATTER = 8
TRM_GATHER = 9
TRM_ALLTOALL = 10
TRM_ALLTOALLV = 11
TRM_BARRIER = 12

# trm_deterministic
TRM_DETERMINISTIC_FALSE = 0
TRM_DETERMINISTIC_TRUE = 1
TRM_DETERMINISTIC_STRICT = 2

# trm_init
TRM_INIT_ZERO = 0
TRM_INIT_ONE = 1
TRM_INIT_HE_NORMAL_FAN_OUT = 2
TRM_INIT_HE_UNIFORM = 3
TRM_INIT_LINEAR = 4
TRM_INIT_GLOROT_UNIFORM = 5
TRM_INIT_NORMAL_001 = 6
TRM_INIT_NORMAL_002 = 7
TRM_INIT_NORMAL = 1073741824

# trm_gelu_form
TRM_GELU_ERF = 0
TRM_GELU_TANH = 1

# trm_precision
TRM_PRECISION_FP32 = 0
TRM_PRECISION_MIXED = 1
TRM_PRECISION_ORIGIN = 2

# trm_bucket_mode
TRM_BUCKET_AUTO = 0
TRM_BUCKET_OFF = 1
TRM_BUCKET_SIZE = 2
TRM_BUCKET_LIST = 3

# trm_split_kind
TRM_SPLIT_NONE = 0
TRM_SPLIT_PLANNED = 1
TRM_SPLIT_SEARCHED = 2

# trm_batch_scope
TRM_BATCH_DEFAULT = 0
TRM_BATCH_OF_RANK = 1
TRM_BATCH_OF_JOB = 2

# trm_cooperative
TRM_COOPERATIVE_OFF = 0
TRM_COOPERATIVE_CONV = 1
TRM_COOPERATIVE_ALL = 2

# trm_schedule
TRM_SCHEDULE_1F1B = 0
TRM_SCHEDULE_GPIPE = 1
TRM_SCHEDULE_INTERLEAVED = 2

# trm_variable_kind
TRM_VARIABLE_PARAMETER = 0
TRM_VARIABLE_STATE = 1
TRM_VARIABLE_SLOT = 2

# trm_peak_mix
TRM_PEAK_READ = 0
TRM_PEAK_TRIAD = 1
TRM_PEAK_COPY = 2
TRM_PEAK_WRITE = 3
TRM_PEAK_MIXES = 4

# trm_stem
TRM_STEM_IMAGENET = 0
TRM_STEM_CIFAR = 1

# trm_row_init_kind
TRM_ROW_INIT_CONSTANT = 0
TRM_ROW_INIT_UNIFORM = 1
TRM_ROW_INIT_NORMAL = 2

# trm_admission_kind
TRM_ADMIT_ALL = 0
TRM_ADMIT_COUNT = 1
TRM_ADMIT_BLOOM = 2
TRM_ADMIT_PROBABILITY = 3

# trm_cap_policy
TRM_CAP_LRU = 0
TRM_CAP_LFU = 1

# trm_placement_kind
TRM_PLACE_BY_HASH = 0
TRM_PLACE_ROUND_ROBIN = 1
TRM_PLACE_BY_SIZE = 2

# trm_partition_kind
TRM_PARTITION_NONE = 0
TRM_PARTITION_FIXED = 1
TRM_PARTITION_MIN_SIZE = 2
TRM_PARTITION_MAX_SIZE = 3

# trm_ps_mode
TRM_PS_ASYNC = 0
TRM_PS_BOUNDED = 1
TRM_PS_SYNC = 2

# trm_ps_chief_claim
TRM_PS_CHIEF_STANDS_IN = 0
TRM_PS_CHIEF_IS = 1

# trm_decay
TRM_DECAY_CONSTANT = 0
TRM_DECAY_STEP = 1
TRM_DECAY_COSINE = 2
TRM_DECAY_POLYNOMIAL = 3
TRM_DECAY_WSD = 4

# trm_elastic_batch
TRM_ELASTIC_BATCH_GLOBAL = 0
TRM_ELASTIC_BATCH_RANK = 1

# trm_watch
TRM_WATCH_EVALUATION_LOSS = 0
TRM_WATCH_TOP1 = 1
TRM_WATCH_LOSS = 2

# trm_training_event
TRM_EVENT_STEP = 0
TRM_EVENT_EPOCH = 1
TRM_EVENT_EVALUATION = 2
TRM_EVENT_CHECKPOINT = 3
TRM_EVENT_MEMBERSHIP = 4

# trm_run_mode
TRM_MODE_TRAIN = 0
TRM_MODE_EVAL = 1

# trm_ps_lend
TRM_PS_LEND_AUTO = 0
TRM_PS_LEND_ALWAYS = 1
TRM_PS_LEND_NEVER = 2

# trm_exporter_kind
TRM_EXPORT_NONE = 0
TRM_EXPORT_LATEST = 1
TRM_EXPORT_BEST = 2
TRM_EXPORT_FINAL = 3

# trm_verify_kind
TRM_VERIFY_LOSS = 0
TRM_VERIFY_FORWARD = 1
TRM_VERIFY_GRADIENT = 2
TRM_VERIFY_VARIABLE = 3
TRM_VERIFY_KINDS = 4

# The words of each enum.
ENUMS = {
    'trm_status': {'ok': 0, 'end': 1, 'pending': 2, 'invalid': -1, 'nomem': -2, 'io': -3, 'corrupt': -4, 'unsupported': -5, 'timeout': -6, 'peer': -7, 'cancelled': -8, 'internal': -9, 'nospace': -10, 'diverged': -11},
    'trm_switch': {'default': 0, 'on': 1, 'off': 2},
    'trm_bag_pooling': {'sum': 0, 'mean': 1, 'sqrt_n': 2},
    'trm_dtype': {'dtype_none': 0, 'float32': 1, 'float64': 2, 'bfloat16': 3, 'float16': 4, 'int8': 5, 'uint8': 6, 'int32': 7, 'int64': 8},
    'trm_log_level': {'error': 0, 'warn': 1, 'info': 2, 'debug': 3},
    'trm_optimizer_kind': {'default': 0, 'sgd': 1, 'momentum': 2, 'adagrad': 3, 'rowwise_adagrad': 4, 'adam': 5, 'lazy_adam': 6, 'ftrl': 7, 'nesterov': 8, 'lars': 9},
    'trm_usage': {'train': 0, 'test': 1, 'all': 2},
    'trm_resize_align': {'half_pixel': 0, 'original': 1, 'antialias': 2},
    'trm_transform_kind': {'decode': 1, 'random_crop': 2, 'random_resized_crop': 3, 'center_crop': 4, 'random_flip': 5, 'resize': 6, 'resize_shorter': 7, 'rescale': 8, 'normalize': 9, 'hwc2chw': 10, 'type_cast': 11},
    'trm_shard_mode': {'wrap': 0, 'drop': 1, 'pad': 2},
    'trm_column_role': {'skip': 0, 'label': 1, 'dense': 2, 'key': 3, 'bag': 4},
    'trm_dense_form': {'default': 0, 'raw': 1, 'log': 2},
    'trm_header_line': {'auto': 0, 'yes': 1, 'no': 2},
    'trm_role': {'worker': 0, 'chief': 1, 'ps': 2, 'evaluator': 3, 'scheduler': 4},
    'trm_rank_table_form': {'groups': 1, 'template2': 2, 'v1': 3, 'v2': 4},
    'trm_launch_stream': {'out': 1, 'err': 2, 'note': 3, 'failure': 4},
    'trm_reduction': {'none': 0, 'sum': 1, 'mean': 2, 'prod': 3, 'max': 4, 'min': 5},
    'trm_collective_kind': {'collective_none': 0, 'allreduce': 1, 'broadcast': 2, 'reduce': 3, 'allgather': 4, 'allgatherv': 5, 'reduce_scatter': 6, 'reduce_scatterv': 7, 'scatter': 8, 'gather': 9, 'alltoall': 10, 'alltoallv': 11, 'barrier': 12},
    'trm_deterministic': {'false': 0, 'true': 1, 'strict': 2},
    'trm_init': {'zero': 0, 'one': 1, 'he_normal_fan_out': 2, 'he_uniform': 3, 'linear': 4, 'glorot_uniform': 5, 'normal_001': 6, 'normal_002': 7, 'normal': 1073741824},
    'trm_gelu_form': {'erf': 0, 'tanh': 1},
    'trm_precision': {'fp32': 0, 'mixed': 1, 'origin': 2},
    'trm_bucket_mode': {'auto': 0, 'off': 1, 'size': 2, 'list': 3},
    'trm_split_kind': {'none': 0, 'planned': 1, 'searched': 2},
    'trm_batch_scope': {'default': 0, 'of_rank': 1, 'of_job': 2},
    'trm_cooperative': {'off': 0, 'conv': 1, 'all': 2},
    'trm_schedule': {'1f1b': 0, 'gpipe': 1, 'interleaved': 2},
    'trm_variable_kind': {'parameter': 0, 'state': 1, 'slot': 2},
    'trm_peak_mix': {'read': 0, 'triad': 1, 'copy': 2, 'write': 3, 'mixes': 4},
    'trm_stem': {'imagenet': 0, 'cifar': 1},
    'trm_row_init_kind': {'constant': 0, 'uniform': 1, 'normal': 2},
    'trm_admission_kind': {'all': 0, 'count': 1, 'bloom': 2, 'probability': 3},
    'trm_cap_policy': {'lru': 0, 'lfu': 1},
    'trm_placement_kind': {'by_hash': 0, 'round_robin': 1, 'by_size': 2},
    'trm_partition_kind': {'none': 0, 'fixed': 1, 'min_size': 2, 'max_size': 3},
    'trm_ps_mode': {'async': 0, 'bounded': 1, 'sync': 2},
    'trm_ps_chief_claim': {'stands_in': 0, 'is': 1},
    'trm_decay': {'constant': 0, 'step': 1, 'cosine': 2, 'polynomial': 3, 'wsd': 4},
    'trm_elastic_batch': {'global': 0, 'rank': 1},
    'trm_watch': {'evaluation_loss': 0, 'top1': 1, 'loss': 2},
    'trm_training_event': {'step': 0, 'epoch': 1, 'evaluation': 2, 'checkpoint': 3, 'membership': 4},
    'trm_run_mode': {'train': 0, 'eval': 1},
    'trm_ps_lend': {'auto': 0, 'always': 1, 'never': 2},
    'trm_exporter_kind': {'none': 0, 'latest': 1, 'best': 2, 'final': 3},
    'trm_verify_kind': {'loss': 0, 'forward': 1, 'gradient': 2, 'variable': 3, 'kinds': 4},
}


class trm_error(Structure):
    """status: a trm_status
    rank: rank that detected the error; -1 when there is only one
    sys_errno: errno at that moment; 0 = none
    line: source line that detected the error
    file: its source file, the last part of the path
    message: one sentence: what is wrong, found and expected, what to do
    """


class trm_shape(Structure):
    """rank: number of dimensions, 0 to TRM_MAX_RANK
    dim: [rank] sizes, outermost first
    """


class trm_tensor(Structure):
    """data: first element; NULL where a comment allows a tensor without data
    dtype: of the elements
    shape: of the elements; row-major, without gaps
    """


class trm_optimizer_options(Structure):
    """kind: the rule
    momentum: MOMENTUM, NESTEROV, LARS; 0 = none. Unused by other rules
    beta1: ADAM, LAZY_ADAM; 0 = 0.9, 0.999
    beta2: ADAM, LAZY_ADAM; 0 = 0.9, 0.999
    epsilon: 0 = ADAM, LAZY_ADAM 1e-8; LARS 1e-9; else 1e-10
    weight_decay: factor of w that is added to the gradient; 0 = none
    decoupled: ADAM, LAZY_ADAM: decay acts on w itself (AdamW)
    decay_all: models: parameters of rank 1 (norms, biases) and those of trm_exclude_from_decay are decayed; false: they are not
    decay_biases: models: biases are decayed, but not the vectors of a batch norm
    trust_coefficient: LARS; 0 = 0.001
    initial_accumulator: ADAGRAD, ROWWISE_ADAGRAD, FTRL: first value of a or n; 0 = 0 (TensorFlow's default is 0.1)
    l1: FTRL: l1 |w| + l2 w^2 is added to the loss, as in TensorFlow (McMahan's lambda2 is 2 l2); 0 = none
    l2: FTRL: l1 |w| + l2 w^2 is added to the loss, as in TensorFlow (McMahan's lambda2 is 2 l2); 0 = none
    beta: FTRL: added to sqrt(n) in the rate of each element; 0 = none, TensorFlow's
    clip_norm: models: limit of the global norm of all gradients; 0 = none
    """


class trm_machine(Structure):
    """cpu: model name of the CPU
    isa: instruction set that the kernels use: "avx512_bf16", "avx512", "avx2", "plain"
    cores: CPUs that this process may use: affinity and cgroup quota
    cores_online: CPUs of the machine
    memory_bytes: RAM that this process may use: machine and cgroup limit
    memory_free_bytes: of that, free now
    onednn: version of oneDNN; "" when built without
    omp_threads: OpenMP's default thread count; 0 when built without
    huge_pages: "always", "madvise", "never"; "" = unknown
    shm_bytes: of /dev/shm; -1 = none
    shm_free_bytes: of /dev/shm; -1 = none
    cache: the cache directory; "" = none
    host: host name
    kernel: release of the kernel
    """


class trm_shapes_options(Structure):
    """train_count: samples; 0 = 50000
    test_count: samples; 0 = 10000
    seed: of all samples
    """


class trm_random_options(Structure):
    """count: samples an epoch; 0 = 50000
    channels: 0 = 3
    height: of an image; must be given
    width: of an image; must be given
    classes: 0 = 10
    channels_last: images are [H, W, C]; false: [C, H, W]
    """


class trm_batch_field(Structure):
    """name: of files: "image", "label"; "dense", "keys", "offsets", "values"; "tokens", "targets"
    tensor: its elements
    """


class trm_data_source(Structure):
    """samples: number of samples
    classes: of an int32 field "label"; 0 = none
    field_count: number of fields
    fields: name, type and shape of one sample; no data
    read: writes one sample
    context: for both functions
    destroy: called by trm_dataset_destroy; NULL = nothing to do
    in_order: a stream: indices come in rising order only, from 0 in each epoch. Not shuffled, at most one prefetch thread; a resume does not notice other contents
    """


class trm_transform(Structure):
    """kind: the step; the other members are used as its function says
    height: in pixels
    width: in pixels
    padding: in pixels
    probability: of a flip, 0 to 1
    scale: of rescaling
    shift: of rescaling
    mean: of channels R, G, B
    std: of channels R, G, B
    area: least and greatest: part of the image's area; width / height
    ratio: least and greatest: part of the image's area; width / height
    align: positions that resizing reads
    dtype: of the result of a cast
    exact: decoding without shortcuts
    """


class trm_batch(Structure):
    """epoch: from 0
    index: within the epoch, from 0
    samples: real ones; further rows are padding
    last: the epoch's last batch
    field_count: number of fields
    fields: [field_count]
    """


class trm_dataset_spec(Structure):
    """kind: synth (the generated shapes), random, cifar10, imagefolder, tfrecord (of images), clicks (generated), criteo, avazu, csv, libsvm, slots, tfrecord-clicks, tokens, text, jsonl; NULL or "auto" = recognised by the path
    path: file or folder; "synth" and "clicks" are the generated sets
    usage: which part
    batch_size: 0 = 32
    image_size: 0 = 32 for CIFAR-10 and shapes, 224 otherwise
    classes: random only; 0 = 10
    shard_count: as trm_dataset_shard; count 0 = not set: a model with ranks shards the data
    shard_index: as trm_dataset_shard; count 0 = not set: a model with ranks shards the data
    seed: of order and augmentation
    prefetch_depth: 0 = 4 batches ahead by one thread; depth TRM_NONE = none
    threads: 0 = 4 batches ahead by one thread; depth TRM_NONE = none
    channels_last: images are [H, W, C]
    image_mean: by which images are normalised, channels R, G, B; std 0 = those of the kind
    image_std: by which images are normalised, channels R, G, B; std 0 = those of the kind
    augment: TRM_OFF: the training set in the form of the test set, in order
    fixed_recipe: a fixed recipe for CIFAR-10: every *batch*.bin file (so the test set too), mean and std in B, G, R order, 224 x 224, and shuffle(10) on top of the permutation
    click: options of click data; NULL = defaults
    text: of tokens, text and jsonl; NULL = defaults
    shapes: of synth; NULL = the default set
    """


class trm_column(Structure):
    """name: in the header line, or of the feature in a tf.Example
    role: use of the column
    last_chars: keys: only the last so many characters are used; 0 = all
    """


class trm_click_options(Structure):
    """buckets: keys are 1 + hash % (buckets - 1), 0 = missing; 0 = unbounded: 63-bit hashes, for dynamic tables
    vocabulary: in place of buckets: ids from 1, 0 = missing or unknown. Borrowed; NULL = none
    shared_table: bounded keys of field f begin after those of the fields before: one table
    same_as: [same_as_count]: texts of field f have the keys of field same_as[f]. Borrowed while the dataset lives; further fields have their own keys
    same_as_count: 0 = none
    hash_seed: of the hash of texts
    dense: form of dense inputs
    missing_dense: value of an empty dense column, after the form
    label_threshold: a label is 1 from this value on (ratings); 0 = labels are 0 or 1
    columns: [column_count], CSV and tf.Example: roles by name, or by position where there is no header. Other columns are skipped. NULL (CSV with header): the column label, click, target or y is the label and all others are keys
    column_count: 0 = none
    separator: 0 = comma
    bag_separator: 0 = |
    bag_max: most keys of a bag, more is an error; 0 = 16
    header: auto: the first line is a header if its label is no number
    generator: trm_dataset_open, kind clicks; NULL = defaults
    """


class trm_click_generator_options(Structure):
    """rows: training rows; 0 = 1,000,000. Test rows are disjoint from them
    test_rows: 0 = rows / 10
    fields: 0 = 26; TRM_NONE = none
    dense: inputs; 0 = 13; TRM_NONE = none
    vocabulary: keys a field; 0 = 100,000
    zipf: exponent; 0 = 1.1
    click_rate: approximate; sets the bias; 0 = 0.25
    key_scale: deviation of the sum of key weights; 0 = 1
    dense_scale: of the dense part; 0 = 0.5
    pair_scale: of the pairs; 0 = 0.5; TRM_NONE = none
    wide_keys: 63-bit keys without order, for dynamic tables
    shared_table: keys of field f begin at f * vocabulary: one table. Not with wide_keys
    seed: of model and rows
    """


class trm_click_random_options(Structure):
    """count: rows; 0 = 32768
    fields: 0 = 26
    dense: inputs; 0 = 13; TRM_NONE = none
    vocabulary: keys a field; 0 = 100,000
    zipf: exponent above 1; 0 = 1.2
    click_rate: 0 = 0.25
    own_tables: keys of each field begin at 0; false: those of field f at f * vocabulary, one table
    seed: of all rows
    threads: that draw the rows at creation; 0 = OMP_NUM_THREADS, or without it the CPUs that this process may use. The rows do not depend on it
    """


class trm_clicks_bayes(Structure):
    """auc: expectations
    logloss: expectations
    click_rate: expectations
    realized_auc: with the labels of the rows
    realized_logloss: with the labels of the rows
    """


class trm_tokenizer_options(Structure):
    """vocabulary: most tokens: the special ones, 256 bytes, and merges
    min_count: pairs that come less often are not merged; 0 = 2
    special_tokens: [special_count]: "<|endoftext|>": never split, have the first ids
    special_count: 0 = none
    """


class trm_tokens(Structure):
    """ids: [count]
    count: ids; room for ids
    capacity: ids; room for ids
    """


class trm_text_options(Structure):
    """tokenizer: folder or tokenizer.json; text needs this or `tokens`
    tokens: "characters" (numbered over all files) or "bytes"; NULL = by the tokenizer
    text_field: of JSON lines; NULL = "text"
    context: tokens of a sample; 0 = 256
    stride: tokens between the beginnings of samples; 0 = context
    vocabulary: ids of token files are below it; 0 = the tokenizer's, else 65536
    masking: share of a sample's tokens that are to be predicted, for bert: 0.15. 0 = the next ones are
    documents: each line of a text, each document of JSON lines, is a sample of its own, or several if it is longer; empty lines are skipped. Else samples are windows over the whole text
    boundary_tokens: default: on, with `masking` and a tokenizer that has them
    mask_token: id that stands for masked tokens; 0 = the tokenizer's "[MASK]" or "<mask>", else the vocabulary's last id, one more than the tokenizer has
    """


class trm_cluster_flags(Structure):
    """rank: used when size > 0
    size: used when size > 0
    local_rank: used when local_size > 0
    local_size: used when local_size > 0
    job_name: ps, worker, chief or evaluator
    task_index: number within the role, as text
    ps_hosts: addresses of the servers
    worker_hosts: addresses of the workers
    chief_hosts: address of the chief
    evaluator_hosts: address of the evaluator
    rank_table: file, in place of RANK_TABLE_FILE
    rendezvous: "host:port", "unix:PATH" or "file:PATH"
    token_file: 32 bytes, mode 0600
    needs_ps: refuses a cluster without servers
    any_address: accepts a table that has no address of this host
    table_wait_seconds: for a table still "initializing"; 0 = 300, < 0 = none
    """


class trm_cluster_info(Structure):
    """source: "rank table /a/b.json (RANK_TABLE_FILE)"
    rank: place in the world that trains together, chief first, then workers by index: 0 to size - 1; -1 for ps, evaluator and scheduler
    size: ranks of that world; 1 without a cluster; 0 = unknown (TFJob's sparse worker map)
    local_rank: among the ranks of this host; -1 = known after the rendezvous only
    local_size: ranks of this host; 0 = known after the rendezvous only
    device_id: from the table or DEVICE_ID, else the local rank, else 0
    role: worker in a world without roles
    task_index: within the role
    has_roles: TF_CONFIG or the flags describe roles
    is_chief: the chief, or worker 0 where no chief is listed: saves and writes summaries
    also_evaluates: TF1's "master": evaluates after each save itself
    sparse_workers: TFJob's enableDynamicWorker: other workers come and go
    one_console: mpirun, srun, torchrun: the output of all ranks is shown as one text
    rank_later: CM_* without RANK_ID: rank is -1 until the rendezvous assigns it
    model_dir: TF_CONFIG's model_dir; NULL = none
    rendezvous: address on which rank 0 listens: "host:port", "unix:PATH", "file:PATH"; NULL where no source names one (for one rank: no flag and no TRIREME_RENDEZVOUS)
    rendezvous_ports: consecutive ports to try, from the one in `rendezvous`
    others_may_join: one rank with a rendezvous: an elastic job can grow from it
    token_file: NULL = none
    algorithm: HCCL_ALGO, default of trm_comm_options.algorithm; NULL = none
    warnings: [warning_count] something unusual, but not wrong, each in one sentence
    warning_count:
    """


class trm_join_options(Structure):
    """timeout_seconds: until all ranks have joined; 0 = HCCL_CONNECT_TIMEOUT, or 120
    heartbeat_seconds: between heartbeats; 0 = 1
    host_seconds: a host that acknowledges nothing for so long is lost; 0 = 4.5
    stall_seconds: a process without a heartbeat for so long is lost; 0 = 120. A warning is logged after 10 s
    host_name: for tests, in place of the real one; NULL = the real one
    insecure: accepts processes of other hosts without a token, with a warning for each
    """


class trm_rank_entry(Structure):
    """rank: from 0
    device_id: on its server
    server: index of its server, in the order of the file
    server_id: borrowed from the table, as the other strings
    host: host_ip if given, else server_id
    device_ip: "" if not given
    """


class trm_rank_table_host(Structure):
    """host: name or address, becomes server_id
    devices: device_id 0 to devices - 1
    device_ips: [devices] addresses; NULL = none
    """


class trm_launch_role(Structure):
    """role: chief, worker, ps or evaluator, each at most once
    count: chief and evaluator: at most 1
    command: as that of the options; NULL = that one
    restarts: how often a failed process of this role is started again; not after exit code 1: the job has failed, its loss diverged
    """


class trm_launch_options(Structure):
    """ranks: processes; unused with roles
    command: program and arguments, ended by NULL; looked up in PATH
    environment: variables that the processes inherit, ended by NULL, without those of other launchers; NULL = none
    extra: "NAME=value" added last, ended by NULL; NULL = none
    directory: of device<i>; NULL = "."
    rank_table: becomes RANK_TABLE_FILE; is for `ranks` ranks; NULL = none
    roles: [role_count] in place of ranks: each process gets its TF_CONFIG
    role_count: 0 = no roles
    threads: OMP_NUM_THREADS of each; 0 = the cores divided evenly, unless the environment has OMP_NUM_THREADS
    bind: binds each process to its CPUs. Default: on
    timeout_seconds: after this the job is ended and has failed; 0 = none
    grace_seconds: from SIGTERM to SIGKILL; 0 = 10
    drain_seconds: servers that still run so long after all others have ended get SIGTERM; 0 = 10
    elastic_least: ranks that die do not end the job while so many are left; 0 = each death ends it. The launcher passes on the output of the lowest rank that is left
    elastic_restarts: how often each rank that has died is started again, to join the ranks that are left; with elastic_least
    dry_run: prints what would run; starts nothing, makes no directory
    write: receives output; NULL = no output
    context: for `write`
    """


class trm_launch_result(Structure):
    """exit_code: 0 all succeeded; 2 a process failed; 5 timeout; 128 + n a process died of signal n, or exited with that code, or the launcher was stopped by signal n
    failed_rank: rank or task index of the first failure; -1 = none
    failed_role: its role
    failed_signal: that ended it; 0 if it exited
    failed_code: its exit code
    seconds: that the job ran
    """


class trm_collective(Structure):
    """kind: the operation
    send: read; NULL = in place
    recv: written
    count: elements, as in the table above; unused by kinds that take counts. TRM_BARRIER: 0, or the step after which the ranks stop: a rank that goes on with another call is then told so
    dtype: of the elements
    reduce: how values are combined
    root: rank that sends to, or receives from, all
    counts: [size] elements for each rank; read before the call returns. Blocks lie packed in rank order unless displacements say otherwise
    recv_counts: TRM_ALLTOALLV: [size] elements that each rank sends to this one
    displacements: TRM_ALLTOALLV: [size] begins of blocks in send, in elements; NULL = packed
    recv_displacements: the same in recv
    tag: names the tensor in errors and reports; the first 39 bytes are kept; NULL = none
    """


class trm_comm_options(Structure):
    """engine: "auto" (shared memory inside a host, the network between hosts), "shm", "tcp" (sockets even inside a host), "ucx", "sim", "mpi" (in processes that mpirun or srun started); ucx and mpi are plug-ins. NULL = auto
    plugin_dir: folder of trireme_comm_*.so; NULL = beside the program, then the system's
    algorithm: overrides the choice by cost, in HCCL_ALGO's form: "ring" for all operations, or a list "allreduce=ring/allgather=level0:NA;level1:bruck/others=NB", or "level0:NA;level1:ring". Algorithms: direct (mesh), ring, halving (H-D_R), nhr, bruck (NB), pairwise, tree, pipeline; NA = by cost. An algorithm that an operation does not have is chosen by cost. NULL = HCCL_ALGO when the job joined (trm_cluster_info.algorithm)
    deterministic: order of sums
    timeout_seconds: deadline of an operation; 0 = HCCL_EXEC_TIMEOUT, or 120
    report_seconds: a warning names operation and ranks after this; 0 = 30
    staging_bytes: for each rank, for buffers that are not shared; 0 = 1 MB
    spin_microseconds: a waiting rank spins at most so long before it sleeps; 0 = 200 (yields meanwhile if there are more ranks than CPUs); TRM_NONE = no spinning
    direct: expert: reads peers' buffers without staging. Default: on
    name: in reports; NULL = "world"
    """


class trm_message(Structure):
    """receive: direction; false: send
    peer: the other rank
    buffer: [count] elements; only read when sending
    count: elements
    dtype: of the elements
    tag: names the tensor in errors; NULL = none
    """


class trm_elastic_options(Structure):
    """least: the job fails with PEER when fewer ranks are left; 0 = 1
    most: no process joins while the job has so many ranks; 0 = 1024
    decision_seconds: a rank that does not come to the decision about the next epoch is given up after so long, or after join.stall_seconds if its process is stopped or its host silent, and ended with SIGKILL if it is on this host; 0 = 120
    join: of each epoch; its texts are borrowed until trm_elastic_destroy
    comm: of each epoch; borrowed as `join`
    """


class trm_membership(Structure):
    """epoch: 1 = the first, 0 = this process has not joined yet
    rank: of this process; -1 = it is in no epoch
    ranks: of the epoch
    lost: numbers of the ranks that the last epoch had and this one has not, because they were lost or have left in order, and of those that are new: a number is the rank in the first epoch, and stays the same. Texts "2, 5"
    left: numbers of the ranks that the last epoch had and this one has not, because they were lost or have left in order, and of those that are new: a number is the rank in the first epoch, and stays the same. Texts "2, 5"
    joined: numbers of the ranks that the last epoch had and this one has not, because they were lost or have left in order, and of those that are new: a number is the rank in the first epoch, and stays the same. Texts "2, 5"
    lost_count: 
    left_count: 
    joined_count: 
    seconds: that the last trm_elastic_recover took; of a model, until it could go on
    redone_steps: of a model: steps that were computed again; ranks at the end without samples, which wait
    spare_ranks: of a model: steps that were computed again; ranks at the end without samples, which wait
    restored_step: of a model: step of the checkpoint from which the ranks went on, because a part of the state was lost; 0 = none
    stays: whether this process has asked to leave and had to stay, because fewer than `least` ranks would have been left
    """


class trm_node(Structure):
    """id: 0 = broken or absent"""


class trm_graph_options(Structure):
    """training: batch norm uses batch statistics and updates the running ones, dropout drops; false: evaluation"""


class trm_conv_options(Structure):
    """stride: height, width; 0 = 1
    dilation: height, width; 0 = 1
    pad: zeros added: top, bottom, left, right
    groups: 0 = 1
    """


class trm_norm_options(Structure):
    """epsilon: added to the variance; 0 = 1e-5
    momentum: weight of the new value in the running statistics; 0 = 0.1
    """


class trm_attention_options(Structure):
    """causal: query t of T reads keys 0 to t + S - T of S
    scale: factor of the scores; 0 = 1 / sqrt(D)
    """


class trm_experts(Structure):
    """router: [E, C]
    up: [E, H, C]
    gate: [E, H, C]: SwiGLU; TRM_NO_NODE: GELU of `up`
    down: [E, C, H]
    top_k: experts of a row; 0 = 2
    normalize: the shares of the chosen experts are divided by their sum. Default: on
    """


class trm_pool_options(Structure):
    """kernel: height, width of the window
    stride: height, width; 0 = kernel
    pad: top, bottom, left, right, each below the kernel's; padding never is the maximum
    count_padding: average pooling divides by the whole window; false: by the elements inside the image
    """


class trm_xent_options(Structure):
    """label_smoothing: weight of the uniform distribution in the target, 0 to 1
    use_ignore_index: rows whose label is ignore_index do not count
    ignore_index: such a label; the rows are neither in the sum nor in the mean
    bias: trm_linear_cross_entropy: [V], added to the logits; TRM_NO_NODE = none
    counted_share: trm_linear_cross_entropy: share of the rows that count, where it is known: memory is taken for as many. More may count, which takes longer. 0 = all
    """


class trm_custom_op(Structure):
    """name: shown in errors and reports
    outputs: number of outputs, 1 to 4
    infer: computes shapes and types of the outputs from those of the inputs
    run: computes the outputs; called from one thread, may use OpenMP, must not allocate
    gradient: adds operators for d(inputs), from the nodes of inputs, outputs and d(outputs) (id 0 = zero); writes TRM_NO_NODE for inputs without a gradient. NULL: not differentiable
    flops: returns the operations of one run, for reports; NULL = none
    context: for the functions above
    """


class trm_split_options(Structure):
    """kind: no split, a given plan, or a searched one
    mesh: "2x4"; NULL = the plan's, else one axis of all ranks (searched: the best)
    plan: text of a plan file (trireme plan --save), strategies by operator; NULL = none
    search: searched: "optimal", "recursive", "propagation", or MindSpore's names for them; NULL = optimal
    trials: searched: runs, in turns, plans that are predicted to be nearly as fast as the best; the fastest is taken and kept with the measured costs, so that the next job runs none. Default: on; TRM_OFF: predictions alone decide
    trial_seconds: limit of the trials; 0 = as long as 240 steps take, 3 s at least and 40 s at most
    measure_seconds: searched: limit of measuring operators, over all rounds of the search; operators that were not measured by then cost their roofline times the ratio of the nearest measured one of their kind. Where no file of an earlier job has the messages between ranks, it is also a limit of measuring these; those that were not measured by then cost what two all-reduces say. 0 = operators as long as 500 steps take, 3 s at least and 30 s at most, or 40 steps if those are longer; messages 6 to 60 s
    save_plan: file to which rank 0 writes the plan that runs; NULL = none
    save_groups: training: file to which rank 0 writes which ranks hold the same parts of all parameters, a line of ranks for each group: another rank of the line can replace a lost part. NULL = none
    input_cuts: a tuple for each input, in the order in which the graph got them, with the number of parts of each dimension: "((1,1,1,2),(2,))" cuts images by columns and labels by samples; each rank feeds its part. At most one dimension of an input is cut. Of 4 ranks and 2 parts, ranks 0 and 1 feed part 0. Samples are assigned to parts in turn, as in TRM_BATCH_OF_RANK; other dimensions are cut into runs. Models: only the tuples are checked. NULL = by `batch`
    replans: searched: the plan is for ranks of a running job whose number has changed, and which wait for it: messages of a number of ranks, or of a group, that was not measured before cost what those of the nearest number do. Elastic jobs set it
    """


class trm_pipeline_options(Structure):
    """stages: 0, 1 = no pipeline; divides the number of ranks
    schedule: order of the micro-batches
    chunks: TRM_SCHEDULE_INTERLEAVED: runs of operators of each stage; 0 = 2
    begins: names of the forward operators with which the second and further runs begin, separated by commas, in the order of the graph; NULL = runs of equal time
    """


class trm_parallel_options(Structure):
    """comm: ranks that train together. NULL: a model uses the ranks that its process has joined (trm_join), an executor is one rank. With one rank all below is without effect. Borrowed, must outlive the executor
    stand_alone: models without `comm`: one rank, although the process has joined ranks
    batch: samples in a batch that a rank feeds: its own, or those of all ranks
    pipeline: zero = every rank runs all operators
    split: one graph over all ranks; zero = each rank runs the whole graph
    sum: gradients are summed over the ranks; false: their mean
    wire: type of gradients on the way: 0 = float32; bfloat16, float16
    bucket: which gradients one all-reduce takes
    bucket_bytes: TRM_BUCKET_SIZE: bytes of a bucket
    bucket_list: TRM_BUCKET_LIST: [bucket_list_count] numbers of gradients; copied
    bucket_list_count: 0 = none
    shard_optimizer: each rank reduces, updates and publishes its slice, and only it has the slice's slots. Same bits. Split graphs: where a plan leaves all parameters whole; other plans say where values are
    cooperative: no effect without shard_optimizer, between hosts or threads, with buckets other than AUTO, accumulate, blocks, layerwise, memory_bytes, or a plan that cuts more than samples
    sync_batch_norm: ranks whose samples batch norm's statistics are of: 0 = all, as on one device; TRM_NORM_LOCAL = each rank its own; N = N neighbouring ranks (not of a split graph)
    layerwise: hybrid_parallel: [layerwise_count] names, or prefixes ("fc" covers "fc.weight"), of parameters that each rank keeps to itself, neither broadcast nor reduced; copied
    layerwise_count: 0 = none
    block: models, with one rank too: samples in a block of strict determinism, which gives the same bits on any number of ranks and threads, and under any plan, for an equal global batch. Divides each rank's batch; -1 = the largest power of 2 that divides the global batch into 8 blocks or more, from 32 samples a block on into 64 or more; 0 = off. Batch norm is over the global batch. Costs: trireme help deterministic
    broadcast: expert: creation sends rank 0's parameters and states to all ranks. Default: on
    """


class trm_loss_scale_options(Structure):
    """on: scales the loss
    dynamic: the scale changes; false: it is fixed
    initial: first scale, >= 1; 0 = 65536
    grow_by: factor > 1; 0 = 2
    shrink_by: factor in (0, 1); 0 = 0.5
    grow_every: good steps until the scale grows; 0 = 2000
    shrink_after: overflows until it shrinks; 0 = 1
    """


class trm_exec_options(Structure):
    """precision: types that the program computes with
    optimizer: rule of trm_exec_update; zero = SGD
    threads: compute threads; 0 = as many as the step needs, at most OMP_NUM_THREADS, or without it the CPUs that this process may use, shared with the other processes of the job on this host. Equal graph, options and CPUs give an equal number
    seed: of initial values and dropout
    loss_scale: trm_exec_ranges then has scaled gradients
    memory_bytes: limit of a rank's memory for training (parameters, gradients, optimiser, activations, as trireme plan counts them): a searched plan stays below it, one device recomputes activations in backward, a program above it is refused (NOMEM, with the least that is needed). 0 = no limit; none is below 0
    accumulate: gradients of so many forward_backward calls (models: batches) are averaged; 0 = 1. A model leaves out an epoch's last incomplete group. Never below 0
    recompute: values of segments (trm_graph_mark_segment) are not kept for backward, but computed again there: less memory, more time, the same bits
    parallel: many ranks; zero = one
    backend: "onednn" or "ref"; NULL = onednn
    tuning_file: tuning cache; NULL = in the cache directory, "" = none
    retune_seconds: by default a process measures kernels for 0.33 s and uses the cost model for the rest; both are kept in tuning_file, so that later runs compute the same bits. Positive: seconds for measuring, too, choices that the cost model made
    choices_file: kernels that one run has chosen: read before tuning_file, new ones are appended, so that a restarted run computes the same bits. A file for each rank; NULL = none
    fusion: adjacent operators run as one. Default: on; TRM_OFF: each by itself, for comparison
    initialise: parameters and states get initial values. Default: on; TRM_OFF: they are zero until trm_exec_write, for callers that write all of them before the first step
    share_slots: the state lies in memory that the other ranks of the host can map: slots of the optimiser, and in a pipeline the parameters and accumulated gradients of a stage (those of other ranks do anyway). Default: off; elastic jobs set it
    host_processes: processes of the job on this host; 0 = the ranks of parallel.comm on it
    loss: scalar node; TRM_NO_NODE: forward only
    outputs: [outputs_count] nodes that trm_exec_output reads after a step
    outputs_count: 
    parameters_of: executor whose parameters and states this one uses (evaluation); NULL = its own. Must outlive this one
    keep_casts: evaluation graphs: conversions of parameters to bfloat16 are made in the first run and kept, until trm_exec_write. With `parameters_of` the parameters may not change; that executor's kept conversions serve this one, if it has them all
    updated_elsewhere: parameter servers update the parameters: no slots, and trm_exec_update is refused
    whole_gradients: all gradients are written, and nothing else into their memory: for programs that sum the gradients of ranks themselves (trm_exec_ranges). False: gradients of large matrices over few samples are multiplied inside the update and never written, where no reduction and no caller reads them; those of embedding tables have only the rows of the batch; and one process keeps activations in the memory of gradients that are not made yet, so that trm_exec_forward overwrites them
    blocks: strict determinism, the same bits on any number of ranks and threads: number of equal blocks of this rank's batch, or of the whole batch of a split graph; sample i that is fed belongs to block i modulo `blocks`. Sums over samples are made block by block and added in a fixed order. Losses, batch norm and gradients are of the batch of all ranks. Not for operators that mix samples other than by sums, norms and losses. 0 = off. Models use trm_parallel_options.block
    """


class trm_loss_scale_state(Structure):
    """scale: factor of the loss
    good: steps since the scale changed; since an overflow
    bad: steps since the scale changed; since an overflow
    skipped: updates skipped so far
    overflow: the last update was skipped
    """


class trm_variable(Structure):
    """name: "layer1.0.conv1.weight", slots "layer1.0.conv1.weight/momentum". Of MOMENTUM, NESTEROV and LARS: momentum; ADAGRAD: accumulator; ADAM, LAZY_ADAM: m, v; FTRL: n, z. The exec's
    kind: parameter, state or slot
    dtype: of its elements
    shape: of the whole variable, also where a plan cuts it
    """


class trm_parallel_info(Structure):
    """rank: 0 and 1 without a communicator
    size: 0 and 1 without a communicator
    buckets: number of buckets
    bytes: sent through the reduction in a step, in the wire's type
    alpha: seconds of an empty message, and bandwidth, measured at creation
    bytes_per_second: seconds of an empty message, and bandwidth, measured at creation
    one_copy: all ranks map one copy of the parameters: shard_optimizer, processes of one host
    casts: conversions of parameters to bfloat16 that are shared in the same way, made after the update
    predicted_end_seconds: of the reduction with these buckets, and of backward; 0 = not measured yet
    backward_end_seconds: of the reduction with these buckets, and of backward; 0 = not measured yet
    cooperative_bytes: of cooperative gradients, which are not sent
    always_zero_bytes: of gradients that are always zero, which are not sent
    """


class trm_searched_plan(Structure):
    """searched: false on other ranks, and where no plan was searched: all else is zero then
    text: in words: "data parallel, mesh 2: 31 operators by samples"
    step_seconds: predicted time of a step
    data_parallel_step_seconds: the same of data parallel; 0 = there is no such plan
    measured_step_seconds: of the plan, where plans were run in turns; 0 = none was
    search_seconds: of the whole search, with measuring and runs
    """


class trm_waiting(Structure):
    """step_seconds: forward, backward and update of a step
    communication_seconds: of these, waiting
    imbalance_seconds: of these, waiting
    meetings: synchronisation points that were counted
    """


class trm_exec_info(Structure):
    """parameter_count: elements that are trained
    parameter_bytes: arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients) are in gradient_bytes alone
    gradient_bytes: arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients) are in gradient_bytes alone
    slot_bytes: arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients) are in gradient_bytes alone
    activation_bytes: arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients) are in gradient_bytes alone
    other_bytes: arenas; activations that lie in the memory of gradients (trm_exec_options.whole_gradients) are in gradient_bytes alone
    overhead_bytes: outside the arenas: tables of kernels, the program, the library's code
    total_bytes: growth of a process that trains with this exec
    flops: of one forward_backward (or forward)
    predicted_seconds: of one step
    create_seconds: that trm_exec_create took
    steps: program steps
    threads: that a step computes with
    backend: "onednn" or "ref"
    """


class trm_peak_memory(Structure):
    """bytes: size of the working set
    bytes_per_second: read and written, with the faster kind of stores
    """


class trm_machine_peak(Structure):
    """threads: that measured together
    float32_flops: per second; bfloat16 pairs: 0 = no such instruction
    bfloat16_flops: per second; bfloat16 pairs: 0 = no such instruction
    memory: [memory_count] by rising working set
    memory_count:
    """


class trm_step_profile(Structure):
    """name: of the operator and its kernel; phase: forward, backward or update
    kind: of the operator and its kernel; phase: forward, backward or update
    algorithm: of the operator and its kernel; phase: forward, backward or update
    phase: of the operator and its kernel; phase: forward, backward or update
    seconds: median of the repeats; FLOPs; bytes moved, and of these written
    flops: median of the repeats; FLOPs; bytes moved, and of these written
    bytes: median of the repeats; FLOPs; bytes moved, and of these written
    written_bytes: median of the repeats; FLOPs; bytes moved, and of these written
    first_bytes: of these, moved by a first pass that must end before the rest begins (the statistics of a norm)
    first_written_bytes: of these, moved by a first pass that must end before the rest begins (the statistics of a norm)
    work_flops: FLOPs that must be executed in the type of the main input (below `flops` because padding is left out), or, instead, in float32 regardless of the input type (Winograd's products, which lose too much accuracy in bfloat16)
    work_float32: FLOPs that must be executed in the type of the main input (below `flops` because padding is left out), or, instead, in float32 regardless of the input type (Winograd's products, which lose too much accuracy in bfloat16)
    bfloat16: type of the main input
    reuse_bytes: moved since its large inputs were last used, itself included: a smaller cache no longer holds them
    same: number of equal operators (kind, shapes, layout) in the program, with this one
    first_same: index of the first of them
    """


class trm_profile_options(Structure):
    """repeats: runs of the program; 0 = 1
    beside: rates are sampled after each run (and FLOP/s 20 times per second between operators), so that both are measured at the same clock frequency and load; NULL = nothing is measured beside
    update: the optimiser runs after each run at learning rate 0, which changes only its slots, and is the last step of the profile (kind "optimizer")
    stop: another thread or a signal handler sets it to another value than 0, and the profile ends after the operator that runs; NULL = none
    """


class trm_program_profile(Structure):
    """steps: [count] the exec's, valid until the next profile
    count: of steps
    seconds: of one run, median
    """


class trm_context_option(Structure):
    """name: as trm_context_set takes it
    alias: older name that is accepted too; NULL = none
    values: "true|false", "1 to 4096", "20,35"
    least: limits of a number; both 0: another kind of value
    most: limits of a number; both 0: another kind of value
    fallback: default; "" = none
    modes: parallel modes in which it may be set
    meaning: one sentence
    """


class trm_resnet_options(Structure):
    """depth: 18, 34, 50, 101 or 152
    classes: 0 = 1000
    stem: the first layers
    zero_init_residual: the last norm of each block has weight 0 at the beginning
    """


class trm_lora_options(Structure):
    """rank: rows of A "NAME.lora_A.weight", columns of B "NAME.lora_B.weight"; 0 = no adapters
    alpha: 0 = rank
    dropout: rate for the input of A; 0 = none
    targets: layers that have adapters: attention, mlp, all, or names such as c_attn, q_proj, attn.c_proj; several are joined by '+'; NULL = attention
    """


class trm_vit_options(Structure):
    """layers: 0 = 12
    width: values of a patch; 0 = 768; a multiple of heads
    heads: 0 = 12
    hidden: width of the layer after attention; 0 = 4 width
    patch: height and width of a patch, which divide those of the image; 0 = 16
    dropout: rate for embeddings and for the output of each layer; 0 = none
    epsilon: of norms; 0 = 1e-12
    lora: adapters, which alone are trained
    """


class trm_language_options(Structure):
    """layers: 0 = 12
    width: values of a position; 0 = 768; a multiple of heads
    heads: 0 = 12; a multiple of kv_heads
    kv_heads: heads of keys and values; 0 = heads
    hidden: width of the layer after attention; 0 = 4 width, llama 8/3 width
    context: most positions; 0 = 1024, bert 512
    vocabulary: tokens; 0 = 50257, bert 30522
    dropout: rate for embeddings and for the output of each layer; 0 = none
    epsilon: of norms; 0 = 1e-5, bert 1e-12
    rotary_theta: llama: base of the angles; 0 = 10000
    untied: llama: the output layer has weights of its own, lm_head.weight
    lazy_embedding: llama, untied: of the token embedding only the rows of the batch are updated, as of other tables (lazy Adam); false: all, as PyTorch does
    experts: moe: of each block; 0 = 8
    top_experts: moe: that compute a token; 0 = 2
    balance: moe: factor of the mean load balance in the training loss; 0 = 0.01
    lora: adapters, which alone are trained
    mask: bert: int32 [B, T]: tokens with 0 are not read as keys; TRM_NO_NODE = all are
    masking: bert: share of a sample's tokens that have targets, where it is known (trm_text_options.masking): the loss takes memory for as many. 0 = all may have
    """


class trm_click_inputs(Structure):
    """keys: int64 [N, F]; with bags [K]
    offsets: bags: int64 [N F + 1], keys of bag b begin at offsets[b]; else TRM_NO_NODE
    values: bags: float32 [K], a weight for each key; TRM_NO_NODE: all 1
    dense: float32 [N, D], or TRM_NO_NODE
    batch: N; needed with bags
    """


class trm_field_table(Structure):
    """name: parameters are "embedding.NAME.weight" and "wide.NAME.weight"
    fields: [count] numbers of fields from 0; each field is in one table
    count: 
    rows: 0 = rows of trm_recommender_options
    width: values of a row; 0 = width of trm_recommender_options; DeepFM and DLRM need one width
    init: initial values; 0 = table_init
    """


class trm_recommender_options(Structure):
    """rows: rows of the table, the keys of all fields; must be given here or in each of `tables`
    tables: [tables_count], borrowed while the graph is built; NULL = one table of all fields. Keys of each field then begin at 0 (trm_click_options without shared_table). Not with bags
    tables_count: 0 = none
    width: values of a row; 0 = 16
    pooling: of the rows of a bag
    hidden: widths of the ReLU layers before the logit; NULL = the model's
    hidden_count: number of hidden layers; 0 = the model's, TRM_NONE = none
    bottom: DLRM: widths of the layers of the dense inputs, before the one of `width`
    bottom_count: 0 = the model's
    cross_layers: DCNv2; 0 = 3
    cross_rank: DCNv2: matrices U V^T of this rank; 0 = full matrices
    stacked: DCNv2: the deep part reads the output of the cross part; false: it stands beside it
    wide_dense: Wide&Deep, DeepFM: dense inputs go to the wide part, too. Default: on
    table_init: initial values of tables; 0 = TRM_INIT_NORMAL_001
    layer_init: initial values of layers' weights; 0 = Glorot's; biases begin at 0
    """


class trm_network_options(Structure):
    """classes: 0 = 10
    stem: ResNets: the first layers
    zero_init_residual: ResNets, as in trm_resnet_options
    vit: vit: its options
    """


class trm_generator_options(Structure):
    """model: name of the language model (gpt2, llama, moe)
    network: options that it was built with; NULL = all zeros
    """


class trm_sampling(Structure):
    """temperature: divides the logits; 0 = the most probable token
    top_k: of the k most probable tokens only; 0 = all
    top_p: of the fewest tokens that have this probability together; 0 = all
    seed: the same seed chooses the same tokens
    """


class trm_named_tensor(Structure):
    """name: of the tensor
    tensor: its elements
    """


class trm_text_pair(Structure):
    """key: its name
    value: its text
    """


class trm_safetensors_entry(Structure):
    """name: of the tensor
    dtype: in the file's words: "F32", "BF16", "BOOL", "F8_E4M3", ...
    rank: may exceed TRM_MAX_RANK
    dims: [rank]
    offset: of the first byte in the file
    bytes: of the data
    tensor: read-only view into the mapping. dtype is TRM_DTYPE_NONE where trm_dtype has no such type or the rank is too high. Files of other programs may have unaligned data: trm_safetensors_read copies
    """


class trm_checkpoint_info(Structure):
    """global_step: updates applied; names the folder: ckpt-<global_step>
    epoch: the epoch in progress
    data_position: samples of this epoch that are used, of all ranks
    seed: with counter-based random numbers this is all of their state
    world_size: ranks of the job
    config_json: settings of the run, a JSON object; NULL = {}
    state_json: state of the trainer (loss scale, best metric, fingerprint of the data ...), a JSON object; NULL = {}
    sequence: filled in when read: order of saving in this folder
    saved_unix_seconds: filled in when read: time of saving
    path: filled in when read: its folder ("out/ckpt-100")
    skipped: filled in when read: damaged checkpoints skipped before this one
    """


class trm_checkpoint_part(Structure):
    """name: of the part
    tensors: [count]
    count: 
    metadata: [metadata_count]
    metadata_count: 
    read: gives tensors whose data are NULL, because they are too large for memory, while the file is written, in order and a few megabytes at a time: rows (of the first dimension) [first, first + rows) into `to`. An error ends the save. Such a checkpoint is not saved in the background. NULL = none
    read_context: for `read`
    """


class trm_checkpoint_options(Structure):
    """keep: newest checkpoints that stay; 0 = 5, TRM_ALL = all
    keep_every_hours: beside them one in so many hours stays for ever; 0 = none
    background: a save copies to memory and returns; a thread writes
    lock_wait_seconds: limit of waiting for another writer to leave; at least 2 s
    outwait_lock: wait for a writer on another host while it gives no sign of life, until it counts as gone: 60 s after the last one. A writer that lives gives one every 5 s
    outwait_seconds: limit of that wait, at least 2 s; a writer that does not count as gone by then is an error. 0 = until it does. Models: the limit in which the ranks must have met (trm_join_options), if that is shorter
    on_saved: called when a checkpoint is on the disk; with `background`, from the writing thread. NULL = none
    on_saved_context: for `on_saved`
    """


class trm_checkpoint_open_options(Structure):
    """mark_in_use: a writer does not remove it before close; tried only, since it needs a writable folder"""


class trm_named_scalar(Structure):
    """name: of the number
    value: the number
    """


class trm_events_options(Structure):
    """resumed: this run continues from a checkpoint
    resume_step: points of older files after this step disappear from the charts
    """


class trm_graph_event_node(Structure):
    """name: of the node
    op: "Conv2D"
    inputs: [input_count] names of nodes
    input_count: 
    device: "rank:0"; NULL = none
    output_shape: shown on the edges; NULL = unknown
    """


class trm_metrics_options(Structure):
    """columns: [column_count] CSV: all names that will come; required there
    column_count: 0 = none
    resumed: appends to an existing file; false: it is emptied
    resume_step: lines after this step are dropped: they will come again
    """


class trm_npz_entry(Structure):
    """name: without ".npy"; "" in a .npy file
    descr: NumPy's word: "<f4", "|b1"
    fortran_order: first dimension varies fastest
    rank: may exceed TRM_MAX_RANK
    dims: [rank]
    offset: of the data in the file
    bytes: of the data
    tensor: read-only view of the data, perhaps unaligned. dtype is TRM_DTYPE_NONE if trm_dtype has no such type, the rank is above TRM_MAX_RANK, or the order is Fortran's
    """


class trm_probe(Structure):
    """path: as given
    is_directory: there is no data then
    data: [bytes] the whole file, mapped; NULL if empty or a folder
    bytes: of the file
    """


class trm_recogniser(Structure):
    """kind: "safetensors"
    name_hint: part of the usual names (".safetensors"): decides when no content fits, so that a damaged file gets the fitting error. NULL = none
    matches: returns true if the content can be of this kind
    describe: checks the file from end to end and describes it: lines for people, or one JSON object on one line. The first fault ends it with TRM_CORRUPT and its place, after the lines before it
    """


class trm_inspect_options(Structure):
    """json: one JSON object in place of lines
    more: [more_count] recognisers, tried before the library's
    more_count: 0 = none
    other_kinds: further kinds that the caller recognises, for the error when nothing fits; NULL = none
    """


class trm_huggingface_options(Structure):
    """model: name of the language model, or vit
    network: options that it was built with; NULL = all zeros
    vit: vit: options that it was built with; NULL = all zeros
    tokenizer: written, too; NULL = none
    shard_bytes: most bytes of a file of weights; 0 = 5e9
    merge: a network with adapters: they are added to the weights; false: the folder has the adapters alone, as peft loads them beside the weights that training began with
    image_mean: vit: mean and deviation with which images are normalised after a factor of 1 / 255, written to preprocessor_config.json; image_std all 0 = not known, not written
    image_std: vit: mean and deviation with which images are normalised after a factor of 1 / 255, written to preprocessor_config.json; image_std all 0 = not known, not written
    """


class trm_row_init(Structure):
    """kind: the distribution
    value: as the kind says
    scale: as the kind says
    stream: not 0: rows are those of a [.., width] array filled element by element from this stream of random numbers, as parameters of a network are, so that a table begins with the values that it has on one device
    """


class trm_admission(Structure):
    """kind: the rule
    min_count: 1 to 255; 0 = 2
    capacity: keys that are counted, whole table; 0 = 1 << 20
    probability: in (0, 1]
    """


class trm_expiry(Structure):
    """after_seconds: time without an update of the row
    after_ticks: pushes of any row without an update of this one
    min_score: rows below leave. score = 1 an update, times score_decay a tick; above 1 where nothing decays
    score_decay: 0 = 1 (no decay)
    max_rows: of the whole table; above it the worst of a sample of 16 rows leaves first
    cap: worst row: least recently or least often updated
    min_norm: Euclidean norm of a row's values below which it leaves; where rows begin at 0, also new ones
    """


class trm_placement(Structure):
    """kind: the rule
    parts: parts; 0 = 1. ROUND_ROBIN: parts of the variables before this one
    first: parts; 0 = 1. ROUND_ROBIN: parts of the variables before this one
    rows: of the variable
    begin: BY_SIZE: range of this variable in all bytes, within [0, 1]
    end: BY_SIZE: range of this variable in all bytes, within [0, 1]
    """


class trm_ps_source(Structure):
    """read: copies row `key` of `table` to values[width]; returns false if there is none. Any thread may call it. NULL = no table has any
    context: for `read`
    """


class trm_table_options(Structure):
    """name: unique among the tables of a job; copied
    width: values of a row, 1 to 1048576
    dtype: of the values: 0 = float32; bfloat16, float16
    round_to_nearest: rounding of 16-bit rows and of gradients on a 16-bit wire; false: stochastic
    staleness: BOUNDED mode: batches that rows of this table may be old when they are used: a pull that reads any waits for that, and a worker's cache keeps rows no longer. 0 = the job's, TRM_STALENESS_NONE = rows are never old
    seed: of initial values, rounding and admission
    learning_rate: 0 = 0.01
    optimizer: rule of the rows, whose slots are float32, whatever their dtype; zero = ADAGRAD
    init: initial values
    admission: rule for new keys
    expiry: when rows leave
    placement: 0 = by hash
    """


class trm_partition(Structure):
    """kind: the rule
    max_parts: 0 = 1; MAX_SIZE: 0 = no limit
    part_bytes: 0 = 256 KiB
    """


class trm_ps_variable(Structure):
    """rows: number of rows; bytes of one
    row_bytes: number of rows; bytes of one
    """


class trm_table_stats(Structure):
    """rows: in memory; in the spill file
    spilled_rows: in memory; in the spill file
    bytes: memory of rows, index, admission
    reads: keys
    read_misses: keys
    updates: gradients applied to rows
    created: new keys admitted; not (yet) admitted
    refused: new keys admitted; not (yet) admitted
    expired: rows that left by a rule; by the cap or the memory limit
    evicted: rows that left by a rule; by the cap or the memory limit
    spilled: rows moved to the file; moved back
    unspilled: rows moved to the file; moved back
    no_room: gradients dropped because the memory limit allowed no row
    lags: pushes (each server counts its part) by lag, the table's updates between reading and pushing: 0, 1, 2, up to 4, 8, 16 ... 512, more; and the sum of all lags. Not counted in SYNC mode, which has no lag
    lag_sum: pushes (each server counts its part) by lag, the table's updates between reading and pushing: 0, 1, 2, up to 4, 8, 16 ... 512, more; and the sum of all lags. Not counted in SYNC mode, which has no lag
    admission_level: how often the memory limit has doubled min_count
    """


class trm_row_info(Structure):
    """key: of the row
    last_tick: of the last update: tick, wall-clock second
    last_time: of the last update: tick, wall-clock second
    count: updates since creation; changes of the record
    version: updates since creation; changes of the record
    score: of expiry
    spilled: the row is in the spill file
    """


class trm_bags(Structure):
    """pooling: how the rows of a bag are combined
    rows: [offsets[count]][width]
    weights: [offsets[count]]; NULL = all 1
    offsets: [count + 1]
    count: of bags
    width: of a row
    """


class trm_ps_server_options(Structure):
    """server: number of this one; of all; 0 = 1
    servers: number of this one; of all; 0 = 1
    shards: owner threads; 0 = CPUs of this process, at most 16
    memory_bytes: limit of tables and logs' buffers, never exceeded; 0 = 80 % of the machine's
    listen: "127.0.0.1:4000"; port 0 = any; NULL = this process only
    folder: of checkpoints and logs; NULL = nothing is kept
    log_pushes: logs pushes to the folder: a killed server loses no answered push. Default: off (an estimator's servers: on where there is a folder)
    log_sync: flushes each push to the disk: a machine that fails loses none either
    spill_folder: for rows beyond the memory, made if it is missing; NULL = cold rows are evicted
    spill_bytes: 0 = as much as the disk has
    mode: when pushes are applied and pulls wait
    workers: BOUNDED, SYNC: expected workers; 0 = 1
    staleness: BOUNDED: batches; 0 = every worker finishes batch t before any starts t + 1. Tables may have their own; TRM_STALENESS_ANY = only those count
    backup_workers: SYNC: a step does not wait for the slowest so many; their pushes are dropped, or, with leased samples, added to the next sum
    sum_gradients: SYNC: applies the sum; false: the mean
    staleness_aware: not SYNC: divides the learning rate of a push by 1 + the updates since its rows were read (Zhang et al. 2016), so that k workers move as far as one: for large dense networks
    initial: pure, and the same whenever the server starts: values of rows without any push
    worker_timeout_seconds: a worker that is silent for so long is no longer waited for; 0 = 60
    token: 32 bytes, the job's token, without which no process may connect; NULL = a random one. Processes of this user on this host find it in /tmp/trireme-UID/token-ADDRESS (mode 0600) while the server runs. A server that listens beyond loopback needs one
    job_id: 32 bytes that all processes of the job have: clients of another job are refused; NULL = zeros
    job_origin: source of job_id for the error ("ps 0 has model_dir /data/run"); ids are compared only if both ends give one
    """


class trm_ps_client_options(Structure):
    """addresses: [servers] in the order of their numbers; or
    local: [servers] of this process
    servers: number of servers
    worker: 0 to 65534, unique among those that push; -1 = only reads
    wire: type of rows and gradients on the way; 0 = float32. To 16 bits gradients are rounded stochastically (seeded, so reproducible), rows to nearest
    pushes_ahead: unanswered pushes before a push waits; 0 = 4, at most 32
    cache_rows: hot rows kept of each table; 0 = none
    cache_staleness: own batches for which a cached row is used; 0 = 1
    ring_bytes: shared memory each way, a power of two; 0 = 32 MB
    tcp_only: no shared memory even on one host
    timeout_seconds: limit of every wait, restarts of servers included; 0 = 60
    retry_seconds: time without an answer after which a push is sent again; 0 = 5
    token: as the server's; NULL = the one that the server keeps for this user on this host
    job_id: as the server's, another one is INVALID; NULL = zeros
    job_origin: as the server's
    stopped: polled while waiting for a server: true ends a wait with CANCELLED (for other workers' pushes after five seconds). NULL = never
    lost: polled while waiting for a server: true if a synchronous worker has died: the call fails with PEER. NULL = by timeouts
    over: polled while reconnecting to a server: true if no server will come back: the call fails with PEER. NULL = by timeouts
    context: for these functions
    """


class trm_ps_lease(Structure):
    """id: 0 = none
    epoch: samples [begin, end) of the epoch
    begin: samples [begin, end) of the epoch
    end: samples [begin, end) of the epoch
    """


class trm_ps_push_options(Structure):
    """rate_scale: factor of the tables' learning rates, for a schedule; 0 = 1, TRM_NONE = a rate of 0
    lease: this push used samples of this lease, from the end of the push before it up to `position`; id 0 = none. The samples identify the batch: if this worker dies and others compute the batch again, each row learns from it exactly once. Workers of a job use one batch size. A push under a lost lease is refused: the next push under it returns CANCELLED. With several servers the push waits for the answers of all but server 0, which then marks the samples as used; in SYNC mode server 0 decides then which pushes a step has, and a pull waits for the step of the push before it
    position: sample after the last one used
    """


class trm_ps_lease_options(Structure):
    """samples: of an epoch; of one lease
    lease_samples: of an epoch; of one lease
    epochs: 0 = no end
    timeout_seconds: a lease without a push for so long is lost; 0 = 60
    samples_max: limit of samples of all epochs together; 0 = none
    batch: near samples_max leases are smaller, but whole batches of so many samples; 0 = 1
    """


class trm_ps_client_stats(Structure):
    """lookups: keys of pulls; different ones; of these, found in the cache
    unique_keys: keys of pulls; different ones; of these, found in the cache
    cached_keys: keys of pulls; different ones; of these, found in the cache
    pushes: pushes; sent again; of these, already applied by the server
    resent: pushes; sent again; of these, already applied by the server
    repeated: pushes; sent again; of these, already applied by the server
    reconnects: to servers
    bytes_sent: over all connections
    bytes_received: over all connections
    global_step: pushes (SYNC: steps) applied, as of the last answer
    """


class trm_ps_worker(Structure):
    """worker: number; how often it has started
    incarnation: number; how often it has started
    batches: finished
    active: it has not left, and was not silent for too long
    silent_seconds: since its last message
    """


class trm_ps_chief(Structure):
    """mine: this worker has it
    worker: number of the worker that has it; -1 = none
    silent_seconds: since the holder's last message; after which it loses the lease
    lease_seconds: since the holder's last message; after which it loses the lease
    """


class trm_ps_checkpoint_result(Structure):
    """snapshot: number of the snapshot
    differential: holds changes only
    rows: written by all servers
    bytes: written by all servers
    seconds: in all; of these, with pushes held back
    hold_seconds: in all; of these, with pushes held back
    """


class trm_ps_folder_options(Structure):
    """snapshot: number of the snapshot; 0 = the newest
    logs: adds the pushes of the logs. Default: on; TRM_OFF: the checkpoint alone
    table: loads only its rows; NULL = all
    key: and only this row, with its last writers; NULL = all
    initial: initial values of the job's rows: trm_ps_initial_open (trireme/train.h)
    """


class trm_ps_folder_info(Structure):
    """snapshot: number of the snapshot
    differential: the snapshot holds changes only
    servers: of the job; of a server
    shards: of the job; of a server
    tables: number of tables
    global_step: pushes; of these, added from the logs
    logged: pushes; of these, added from the logs
    """


class trm_ps_writer(Structure):
    """worker: of the push
    incarnation: of the push
    sequence: of the push, within the incarnation
    tick: of the shard; wall-clock second
    time: of the shard; wall-clock second
    """


class trm_learning_rate(Structure):
    """decay: form after warm-up
    base: rate after warm-up; must be given
    end: COSINE, POLYNOMIAL, WSD: rate at total_steps
    gamma: STEP: factor at each boundary; 0 = 0.1
    every_steps: STEP: steps between boundaries; 0 = total_steps / 3, at least 1. WSD: steps of the decay at the end; 0 = total_steps / 10
    power: POLYNOMIAL: exponent; 0 = 1
    warmup_steps: steps of linear rise from warmup_start to base; 0 = none
    warmup_start: rate at the start of warm-up
    total_steps: 0 = the global step at which the training call is to end
    """


class trm_metric(Structure):
    """name: in trm_evaluation, CSV and JSON lines, TensorBoard; not that of a figure there ("loss")
    sum_count: 1 to TRM_MAX_METRIC_SUMS
    add: adds the part of the first `samples` rows of logits and batch to sums[sum_count]; further rows are padding
    value: computes the value; NULL = sums[0] / sums[1], or sums[0] if there is one sum
    context: for both functions; must outlive the model, as must `name`
    """


class trm_ps_training(Structure):
    """client: NULL = no servers. Borrowed, must outlive the model
    tables_only: hybrid: dense parameters stay on the workers and are reduced over `parallel`
    lease_batches: batches a lease: server 0 lends ranges of so many, so that each batch is used once an epoch although workers come and go; `data` is then the same and unsharded on all workers. Not with tables_only. 0 = off
    lease_seconds: time without a finished batch after which a worker's lease goes to other workers; 0 = 60
    cache_rows: hot rows of each embedding table that this worker keeps (trm_ps_client_cache); 0 = none
    prefetch: rows of the next batch are pulled during this one (in asynchronous mode not the variables of a model without tables, since they would be old). Default: on
    placement: of dense variables: rows spread over all servers (default), whole variables or parts of them in turn, or by their bytes
    partition: of dense variables into parts
    table: may change a table's options before it is declared (rows' type, admission, expiry, optimiser): the same on every worker. NULL = unchanged
    context: for `table`
    """


class trm_model_options(Structure):
    """network: adds the network; must be given
    network_context: for `network`; must outlive the model, as must loss_context
    loss: NULL = trm_loss_softmax
    loss_context: for `loss`
    data: dataset with the shapes of the inputs, usually the training set; a model that only loads and generates needs one, too, of any content (trm_dataset_arrays). Borrowed during the call
    learning_rate: schedule
    exec: how the model computes: optimiser, precision, threads, memory, ranks (trireme/exec.h). With many ranks every call below is collective, each rank reads its own shard of the data, and losses, samples and evaluations are those of all ranks together
    ps: parameter servers: trm_model_train trains on the servers, and trm_model_global_step is theirs, updates by all workers. Weights and position are the servers', so such a model is not saved, resumed or loaded
    context: options by name, read in this call: they replace exec.parallel, except its comm, and exec.accumulate. NULL = none. Borrowed during the call
    metrics: of evaluations; the first without `add` ends the list
    evaluation_only: no gradients and no optimiser: the model evaluates, loads and exports
    accept_changes: a checkpoint of other data, network, precision, backend or optimiser is resumed; false: it is refused. Learning rate, schedule, momentum, weight decay, epochs and steps may always change, with one warning that says how
    description: JSON object kept in checkpoints; NULL = "{}"
    elastic: elastic job whose ranks train the model: when ranks die, the others share the same global batch (elastic_batch) and go on (trm_elastic_create). exec.parallel.comm is then set by the model, and what trm_model_exec and trm_model_graph return is valid until the ranks change. Outlives the model. NULL = the ranks do not change
    elastic_batch: of an elastic job
    """


class trm_evaluation(Structure):
    """loss: mean over samples
    samples: that were evaluated
    seconds: that the evaluation took
    has_top: top1 and top5 are valid: logits [N, K] and integer labels
    top1: fractions of samples, 0 to 1
    top5: fractions of samples, 0 to 1
    has_auc: the next three are valid: logits [N] or [N, 1] and float labels
    auc: as in trm_auc_values
    logloss: as in trm_auc_values
    calibration: as in trm_auc_values
    has_tokens: the next three are valid: the model reads the fields "tokens" and "targets" of token data. Targets of -100 do not count; the loss is then the mean over tokens
    tokens: that were predicted
    perplexity: e to the power of the loss
    bits_per_byte: of the text; 0: bytes are unknown
    has_accuracy: the next one is valid: the loss is trm_linear_cross_entropy's
    accuracy: share of the tokens that had the largest logit, 0 to 1
    metric_count: of trm_model_options.metrics
    metrics: [metric_count] their values
    """


class trm_progress(Structure):
    """model: the model
    epoch: from 1, over the model's life
    epochs: where training is to end; 0 = open
    step: within the epoch, from 1
    epoch_steps: steps of an epoch
    global_step: steps since the initial values
    loss: of this step; with accumulation the mean over its batches
    learning_rate: of this step
    loss_scale: after this step; NULL when no loss is scaled
    step_samples: of this step; of this call in this epoch; of this call
    epoch_samples: of this step; of this call in this epoch; of this call
    samples: of this step; of this call in this epoch; of this call
    step_seconds: of this step; sink mode: mean of this epoch
    wait_seconds: of the epoch so far: waiting for the dataset
    epoch_seconds: since the epoch, or this call, began
    seconds: since this call began
    busy_seconds: of these, in steps: without callbacks
    data_seconds: since this call began: waiting for the dataset
    evaluation: the latest; NULL before the first
    checkpoint: on_checkpoint: path of the checkpoint that was written
    membership: the ranks since the last change of an elastic job; NULL before the first change
    stopping: on_end: training was stopped before the epochs were done
    """


class trm_callback(Structure):
    """on_begin: after the position is known, before the first step
    on_epoch_begin: before an epoch's first step
    on_gradients: gradients are complete, parameters still old (trm_exec_ranges)
    on_step_end: after each step; sink mode: once, after the epoch's last step, or where the run ends inside it
    on_epoch_end: after an epoch's last step
    on_evaluated: after an evaluation by a callback
    on_checkpoint: after a checkpoint was written
    on_membership: the ranks of an elastic job have changed; then on_begin again
    on_end: all epochs done, or stopped; not after an error
    destroy: frees the context; NULL = nothing to free
    context: for the hooks
    last: its hooks run after those of all others (a checkpoint must hold their state)
    together: a text: the collective work of its hooks, and when, such as "checkpoints every 100 steps"; NULL: none. Lives as long as the context. A process that comes to an elastic job with callbacks of other texts is refused, because its calls would not meet those of the ranks
    """


class trm_train_options(Structure):
    """data: training set, read from the model's position on; borrowed during the call
    until_epoch: end of training, in epochs of the model's whole life: a model that has done 3 epochs trains 2 more with until_epoch 5, and none with 3. 0 = no such limit
    until_step: in steps of the model's whole life; 0 = no such limit
    sink: sink mode: on_step_end runs once an epoch, not after each step; same bits
    profile: file for the timeline of this call as Chrome trace JSON (ui.perfetto.dev shows it): kernels, waiting, communication, batches; a process a rank, the first 400,000 events of each, written by rank 0 at the end of the call (not after an error). NULL = none
    callbacks: up to the first without hooks
    """


class trm_model_checkpoint_options(Structure):
    """directory: locked by this process until training ends
    every_steps: any of the three; when all are 0, every epoch
    every_seconds: time between checkpoints
    every_epochs: epochs between checkpoints
    writer: which checkpoints stay, and how they are written
    """


class trm_early_stop_options(Structure):
    """watch: the value
    patience: epochs (evaluations) without an improvement until training stops; 0 = 1
    min_delta: an improvement is more than this
    """


class trm_report_mark(Structure):
    """step: 
    samples: 
    membership_epoch: 
    seconds: in steps
    data_seconds: waiting for data
    rank_seconds: waiting for other ranks
    """


class trm_mean_step(Structure):
    """step_seconds: 
    data_wait_seconds: 
    rank_wait_seconds: of step_seconds: waiting for other ranks
    samples_per_second: 0 = unknown
    """


class trm_tensorboard_options(Structure):
    """directory: of the event files
    every_steps: steps between scalars; 0 = 100
    histogram_epochs: epochs between histograms of the parameters; 0 = none
    graph: writes the network once
    """


class trm_input_context(Structure):
    """mode: training or evaluation
    pipelines: number of pipelines; this process's
    index: number of pipelines; this process's
    seed: of the order
    """


class trm_ps_strategy(Structure):
    """lend: how the workers share the data
    server: of every server: mode, staleness, backup_workers (with LEND_NEVER the slowest workers' gradients are dropped with their samples), staleness_aware, shards, memory_bytes, folder (NULL = model_dir/ps), log_pushes (default: on), log_sync, spill_folder, spill_bytes. The estimator sets the other members; they are ignored
    client: of every worker: wire, cache_staleness, and timeout_seconds, the limit of waiting for servers and workers; 0 = 120. A process that is silent for half of it counts as dead, and another worker takes over a chief's work. The estimator sets the other members; they are ignored
    training: of the model: tables_only (hybrid: dense parameters are reduced among the workers), cache_rows, prefetch, placement, partition, table. The estimator sets the other members; they are ignored
    """


class trm_run_config(Structure):
    """model_dir: directory that all roles share; NULL = nothing is saved. Servers refuse a role with another one (INVALID, with both folders), which they find by model_dir/job.id
    warm_start_from: checkpoint's directory or .safetensors file that all roles can read: with servers a new job begins with its weights in place of initial values. It must stay until the job ends. NULL = none
    cluster: place of this process; NULL = local. Borrowed
    distribute: needed where there are servers; copied
    token: 32 bytes, the job's token, where roles are on several hosts; NULL = none
    tf_random_seed: of values, order and dropout; 0 = 1
    save_summary_steps: between TensorBoard points; 0 = 100, TRM_NONE = none
    checkpoints: of checkpoints in model_dir (`directory` is ignored): one of every_steps and every_seconds; 0 = 100 steps with servers, 600 s without; and writer.keep, writer.keep_every_hours
    log_step_count_steps: between lines "loss = ..., step = ..."; 0 = 100, TRM_NONE = none
    iterations_per_loop: 0 = 1; more: callbacks are called only at the ends of epochs (local only)
    precision_mode: allow_mix_precision, must_keep_origin_dtype or force_fp32; NULL = the model's precision
    session_creation_timeout_secs: limit of waiting for servers to start; 0 = 7200
    export_bytes: tables of at most so many bytes in all are in model_dir's checkpoints, for evaluation and export (rows go from the servers to the file, a few MB at a time); 0 = as many as fit on the disk twice when training begins
    print: receives lines for people; NULL = none
    on_evaluated: called after an evaluation, in the process of the role that evaluated; NULL = none
    context: for `on_evaluated`
    """


class trm_train_spec(Structure):
    """input_fn: creates the training set
    params: for `input_fn`
    max_steps: updates by all workers together, over the life of model_dir
    epochs: or passes of each worker over its part; one of the two
    callbacks: of chief and workers (TensorFlow's hooks)
    """


class trm_exporter(Structure):
    """kind: which weights
    name: of the folder
    format: safetensors, npz or onnx; NULL = safetensors
    metric: BEST: loss, logloss (less is better), auc, accuracy, top5; NULL = loss
    exports_to_keep: the newest; 0 = 5, TRM_ALL = all
    """


class trm_eval_spec(Structure):
    """input_fn: creates the test set
    params: for `input_fn`
    steps: batches; 0 = 100, TRM_ALL = all
    name: summaries go to eval_<name>; NULL = eval
    start_delay_secs: before the first evaluation; 0 = 120, TRM_NONE = none
    throttle_secs: between the beginnings of two; 0 = 600, TRM_NONE = none
    exporters: up to the first of kind NONE
    """


class trm_job_result(Structure):
    """role: of this process
    global_step: updates of the model
    has_evaluation: this process has evaluated: evaluator, local, or a chief without evaluator
    evaluation: the last
    evaluated_step: global step of its weights
    least_updates: chief: updates of the rows of dense variables. Both are the number of pushes when each was applied exactly once, also where processes were killed
    most_updates: chief: updates of the rows of dense variables. Both are the number of pushes when each was applied exactly once, also where processes were killed
    lookups: worker: keys of its batches; different ones; of these, found in its cache of hot rows
    unique_keys: worker: keys of its batches; different ones; of these, found in its cache of hot rows
    cached_keys: worker: keys of its batches; different ones; of these, found in its cache of hot rows
    """


class trm_top_k(Structure):
    """hits: rows by the place of the true class
    samples: rows with a valid label
    """


class trm_auc_values(Structure):
    """auc: area under the ROC curve; 0.5 when one class is missing
    logloss: mean of -log p(label), computed in float64 without overflow; 0 = no sample
    calibration: mean prediction / mean label: 1 is calibrated; 0 without positives
    samples: that count
    nans: NaN logits, which do not count
    """


class trm_planner_options(Structure):
    """ranks: 0 = those of the mesh
    hosts: 0 = 1. Meshes are all factorisations of hosts and of ranks a host
    links: text of a description of links (docs/guides/auto-parallel.md); NULL = estimates for ranks that share this machine
    own_devices: without `links`: each rank is a device like this process and shares no cores with others; for simulation
    guess_links: uses those estimates even with a communicator
    measure: operators are measured. Default: on; TRM_OFF: costs by the machine's measured rates only
    frontier: lists the plans of less memory and more time, too. Default: on
    measure_seconds: limit for measuring operators; 0 = as long as 500 steps, 3 to 30, or 40 steps if those are longer
    refresh: measures again the costs that the cache directory has
    extra_candidates: number of additional candidate plans for trm_planner_plan, spaced by predicted step time
    remeasures: trm_planner_remeasure will be called: *out is a planner on all ranks
    stages: stages of a pipeline: 0 = none, TRM_ALL = any number, if such a plan is better than one without stages. split.mesh is then the mesh of one stage
    micro_batches: with stages: equal parts of the global batch that go through them; 0 = any power of 2
    chunks: with stages: runs of operators on each stage; 0 = any
    schedule: with stages: "1f1b", "gpipe", "interleaved"; NULL = any
    stage_begins: operators with which the second and further runs begin; NULL = any
    stages_gain: with stages = TRM_ALL: plans with stages must be predicted faster by this part of a step to be chosen, and their operators are measured only if they may be; a network without marked segments is planned without stages. 0 = any faster plan is chosen
    deterministic: the order in which the planned job sums over ranks, where exec.parallel.comm is NULL (that of a communicator counts otherwise): a fixed order stages whole sums, which takes memory. STRICT plans also need exec.parallel.block
    stop: rank 0: another thread or a signal handler sets it to another value than 0, and the search ends soon; NULL = none. Borrowed until the planner is destroyed
    """


class trm_planner_info(Structure):
    """mesh: of the chosen plan
    ranks: of the mesh
    infeasible: no plan fits memory_bytes: this is the plan of least memory
    step_seconds: predicted time of a step
    samples_per_second: of all ranks
    memory_bytes: of a rank, as the search counts it (first order)
    compiled_bytes: of rank 0's compiled program, by liveness; 0 = not compiled (more than 64 ranks)
    lower_bound: no plan of these meshes has a shorter step, by the same costs
    gap: (step - bound) / step
    solve_seconds: exact solves alone
    search_seconds: spaces and searches of all meshes, the last round
    total_seconds: with measuring and compiling
    data_parallel_seconds: predicted step of data parallel
    tried: plans that were run, of which this one is the fastest or the simplest; 0 = predictions decided
    tried_within: how much slower than the fastest they were predicted to be, at most: 0.1 = 10 %
    meshes: meshes searched; operators of the graph; costs that were measured
    operators: meshes searched; operators of the graph; costs that were measured
    measured: meshes searched; operators of the graph; costs that were measured
    measurements: measurements of the costs on which predictions rest: 1, or more with trm_planner_remeasure
    stages: of the chosen plan; 0 = none. `mesh` is then that of one stage
    micro_batches: of a plan with stages: parts of the batch; runs of operators on each stage (interleaved)
    chunks: of a plan with stages: parts of the batch; runs of operators on each stage (interleaved)
    """


class trm_planner_candidate(Structure):
    """name: "data parallel"; borrowed from the planner
    step_seconds: predicted, with all measurements of the costs
    first_seconds: predicted, with the measurements that the search had
    bytes: of rank 0's compiled program; 0 = it does not compile
    """


class trm_plan_info(Structure):
    """mesh: "2x4", "host=2xlocal=4"
    ranks: of the mesh
    graph: digest of the graph that it was made for; 0 = any
    operators: operators with a line; of these, cut into parts; of these, kept by searches
    cut: operators with a line; of these, cut into parts; of these, kept by searches
    pinned: operators with a line; of these, cut into parts; of these, kept by searches
    stores: parameters and states with a storage of their own
    stages: of a plan with stages, else 0: `mesh` is that of one stage, `ranks` those of all
    chunks: of a plan with stages, else 0: `mesh` is that of one stage, `ranks` those of all
    micro_batches: of a plan with stages, else 0: `mesh` is that of one stage, `ranks` those of all
    schedule: 
    recompute: values of blocks are computed again in backward
    begins: operators with which the second and further runs begin: "a,b"
    """


class trm_simulation_options(Structure):
    """largest: ranks of the scaling tables, at most; 0 = those of the mesh
    straggler: factor of the time of one rank's operators; 0 = 1
    json: one JSON object in place of text
    trace: file for a trace (chrome://tracing, Perfetto); NULL = none
    """


class trm_planner_run_result(Structure):
    """seconds: of a step, of the slowest rank: the lower quartile, on which other load of the machine has little effect
    median_seconds: the same, the median, as costs are measured
    parameter_bytes: of this rank
    gradient_bytes: of this rank
    slot_bytes: of this rank
    activation_bytes: of this rank
    total_bytes: of this rank
    resident_bytes: growth of this process: its own pages, and its part of pages that ranks share; without code
    loss: of the last step
    """


class trm_planner_run_options(Structure):
    """plan: text of a plan file for the communicator's ranks; NULL = data parallel
    steps: number of steps that are timed; 0 = 1
    profile: receives the time of each program step, after the steps were timed; NULL = none
    context: for `profile`
    """


class trm_planner_comparison(Structure):
    """turns: 0 = there was no time for one
    fastest: index of the plan
    seconds: of a step of each plan: median of the turns
    ahead: by which fraction of its own time a plan is faster than plan 0 in the same turn: median
    resolution: differences below this fraction are noise
    """


class trm_planner_compare_options(Structure):
    """plans: [count] texts of plan files; used on rank 0 only
    count: 2 to TRM_COMPARED_PLANS, equal on all ranks
    steps: of each plan in a turn, at least 1
    seconds: for all turns, about; four turns run in any case
    """


class trm_hardware_plan_options(Structure):
    """model: "gpt2", "llama", "moe"
    preset: a published model: gpt2 175b, llama 8b, moe deepseek-v3-shape ... (the message about a wrong name lists them), or a size of trm_language_size; NULL = `sizes`
    sizes: completed as trm_language_complete does
    hardware: text of a hardware file
    hardware_name: its name, for messages; NULL = "hardware"
    devices: of all nodes
    batch: samples of a step on all devices; 0 = one for each device
    context: tokens of a sample; 0 = the model's
    products: type of products, "bf16", "fp16", "fp8", "fp32"; NULL = bf16
    memory_bytes: of a device that a plan may use; 0 = the device's
    narrow_gradients: gradients travel in 16 bits. Default: in 32
    whole_optimizer: no ZeRO: each device keeps the whole optimiser of its parameters
    plan: a plan to compare with, "tp=8,pp=4,cp=1,micro-batch=1,recompute=full"; NULL = none
    """


class trm_hardware_plan_info(Structure):
    """fits: false: no plan fits the memory; this one takes the least
    step_seconds: predicted
    tokens_per_second: of one device
    utilisation: model FLOPs over the peak
    memory_bytes: of the busiest device
    priced: plans that the search has priced
    search_seconds: wall-clock time of the search
    given_seconds: step of options.plan; 0 = none was given
    """


class trm_verify_options(Structure):
    """steps: of training; 0 = 3
    tolerance: relative distance that is always allowed; 0 = 1e-5 (mixed precision: 2e-3)
    factor: distance in units of rounding that is allowed too; 0 = 16
    bitwise: in place of both: every bit must be equal
    """


class trm_verify_tensor(Structure):
    """kind: of its values
    name: of operator, parameter or variable
    count: elements
    error: |split - one device| / |one device|, Euclidean
    largest: difference of an element
    rounding: as error, of the third run against one device; 0 with `bitwise`
    same_bits: all bits are equal; the tensor agrees
    agrees: all bits are equal; the tensor agrees
    """


class trm_verification(Structure):
    """tensors: [count] in the order of kinds, then of the graph
    count: of tensors
    agrees: of all tensors
    same_bits: of all tensors
    chaos: largest `rounding` of a loss: from about 0.01 on, later steps say little
    """


trm_error._fields_ = [
    ('status', c_int32),
    ('rank', c_int32),
    ('sys_errno', c_int32),
    ('line', c_int32),
    ('file', c_char * 24),
    ('message', c_char * 216),
]
trm_shape._fields_ = [
    ('rank', c_int32),
    ('dim', c_int64 * 6),
]
trm_tensor._fields_ = [
    ('data', c_void_p),
    ('dtype', c_int),
    ('shape', trm_shape),
]
trm_log_sink = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
trm_optimizer_options._fields_ = [
    ('kind', c_int),
    ('momentum', c_double),
    ('beta1', c_double),
    ('beta2', c_double),
    ('epsilon', c_double),
    ('weight_decay', c_double),
    ('decoupled', c_bool),
    ('decay_all', c_bool),
    ('decay_biases', c_bool),
    ('trust_coefficient', c_double),
    ('initial_accumulator', c_double),
    ('l1', c_double),
    ('l2', c_double),
    ('beta', c_double),
    ('clip_norm', c_double),
]
trm_machine._fields_ = [
    ('cpu', c_char * 64),
    ('isa', c_char * 32),
    ('cores', c_int32),
    ('cores_online', c_int32),
    ('memory_bytes', c_int64),
    ('memory_free_bytes', c_int64),
    ('onednn', c_char * 32),
    ('omp_threads', c_int32),
    ('huge_pages', c_char * 16),
    ('shm_bytes', c_int64),
    ('shm_free_bytes', c_int64),
    ('cache', c_char * 256),
    ('host', c_char * 64),
    ('kernel', c_char * 64),
]
trm_shapes_options._fields_ = [
    ('train_count', c_int64),
    ('test_count', c_int64),
    ('seed', c_uint64),
]
trm_random_options._fields_ = [
    ('count', c_int64),
    ('channels', c_int64),
    ('height', c_int64),
    ('width', c_int64),
    ('classes', c_int64),
    ('channels_last', c_bool),
]
trm_batch_field._fields_ = [
    ('name', c_char_p),
    ('tensor', trm_tensor),
]
trm_sample_read = CFUNCTYPE(c_int, c_void_p, c_int64, POINTER(trm_tensor), POINTER(trm_error))
trm_data_source._fields_ = [
    ('samples', c_int64),
    ('classes', c_int64),
    ('field_count', c_int32),
    ('fields', trm_batch_field * 6),
    ('read', trm_sample_read),
    ('context', c_void_p),
    ('destroy', CFUNCTYPE(None, c_void_p)),
    ('in_order', c_bool),
]
trm_transform._fields_ = [
    ('kind', c_int),
    ('height', c_int64),
    ('width', c_int64),
    ('padding', c_int64),
    ('probability', c_double),
    ('scale', c_double),
    ('shift', c_double),
    ('mean', c_double * 3),
    ('std', c_double * 3),
    ('area', c_double * 2),
    ('ratio', c_double * 2),
    ('align', c_int),
    ('dtype', c_int),
    ('exact', c_bool),
]
trm_sample_transform = CFUNCTYPE(c_int, c_void_p, c_int64, c_uint64, POINTER(trm_tensor), POINTER(trm_error))
trm_batch._fields_ = [
    ('epoch', c_int64),
    ('index', c_int64),
    ('samples', c_int64),
    ('last', c_bool),
    ('field_count', c_int32),
    ('fields', trm_batch_field * 6),
]
trm_dataset_spec._fields_ = [
    ('kind', c_char_p),
    ('path', c_char_p),
    ('usage', c_int),
    ('batch_size', c_int64),
    ('image_size', c_int64),
    ('classes', c_int64),
    ('shard_count', c_int64),
    ('shard_index', c_int64),
    ('seed', c_uint64),
    ('prefetch_depth', c_int64),
    ('threads', c_int64),
    ('channels_last', c_bool),
    ('image_mean', c_double * 3),
    ('image_std', c_double * 3),
    ('augment', c_int),
    ('fixed_recipe', c_bool),
    ('click', POINTER(trm_click_options)),
    ('text', POINTER(trm_text_options)),
    ('shapes', POINTER(trm_shapes_options)),
]
trm_column._fields_ = [
    ('name', c_char_p),
    ('role', c_int),
    ('last_chars', c_int32),
]
trm_click_options._fields_ = [
    ('buckets', c_int64),
    ('vocabulary', c_void_p),
    ('shared_table', c_bool),
    ('same_as', POINTER(c_int32)),
    ('same_as_count', c_int32),
    ('hash_seed', c_uint64),
    ('dense', c_int),
    ('missing_dense', c_float),
    ('label_threshold', c_float),
    ('columns', POINTER(trm_column)),
    ('column_count', c_int32),
    ('separator', c_char),
    ('bag_separator', c_char),
    ('bag_max', c_int64),
    ('header', c_int),
    ('generator', POINTER(trm_click_generator_options)),
]
trm_click_generator_options._fields_ = [
    ('rows', c_int64),
    ('test_rows', c_int64),
    ('fields', c_int32),
    ('dense', c_int32),
    ('vocabulary', c_int64),
    ('zipf', c_double),
    ('click_rate', c_double),
    ('key_scale', c_double),
    ('dense_scale', c_double),
    ('pair_scale', c_double),
    ('wide_keys', c_bool),
    ('shared_table', c_bool),
    ('seed', c_uint64),
]
trm_click_random_options._fields_ = [
    ('count', c_int64),
    ('fields', c_int32),
    ('dense', c_int32),
    ('vocabulary', c_int64),
    ('zipf', c_double),
    ('click_rate', c_double),
    ('own_tables', c_bool),
    ('seed', c_uint64),
    ('threads', c_int32),
]
trm_clicks_bayes._fields_ = [
    ('auc', c_double),
    ('logloss', c_double),
    ('click_rate', c_double),
    ('realized_auc', c_double),
    ('realized_logloss', c_double),
]
trm_tokenizer_options._fields_ = [
    ('vocabulary', c_int64),
    ('min_count', c_int64),
    ('special_tokens', POINTER(c_char_p)),
    ('special_count', c_int32),
]
trm_tokens._fields_ = [
    ('ids', POINTER(c_int32)),
    ('count', c_int64),
    ('capacity', c_int64),
]
trm_text_options._fields_ = [
    ('tokenizer', c_char_p),
    ('tokens', c_char_p),
    ('text_field', c_char_p),
    ('context', c_int64),
    ('stride', c_int64),
    ('vocabulary', c_int64),
    ('masking', c_double),
    ('documents', c_bool),
    ('boundary_tokens', c_int),
    ('mask_token', c_int64),
]
trm_cluster_flags._fields_ = [
    ('rank', c_int32),
    ('size', c_int32),
    ('local_rank', c_int32),
    ('local_size', c_int32),
    ('job_name', c_char_p),
    ('task_index', c_char_p),
    ('ps_hosts', c_char_p),
    ('worker_hosts', c_char_p),
    ('chief_hosts', c_char_p),
    ('evaluator_hosts', c_char_p),
    ('rank_table', c_char_p),
    ('rendezvous', c_char_p),
    ('token_file', c_char_p),
    ('needs_ps', c_bool),
    ('any_address', c_bool),
    ('table_wait_seconds', c_double),
]
trm_cluster_info._fields_ = [
    ('source', c_char_p),
    ('rank', c_int32),
    ('size', c_int32),
    ('local_rank', c_int32),
    ('local_size', c_int32),
    ('device_id', c_int32),
    ('role', c_int),
    ('task_index', c_int32),
    ('has_roles', c_bool),
    ('is_chief', c_bool),
    ('also_evaluates', c_bool),
    ('sparse_workers', c_bool),
    ('one_console', c_bool),
    ('rank_later', c_bool),
    ('model_dir', c_char_p),
    ('rendezvous', c_char_p),
    ('rendezvous_ports', c_int32),
    ('others_may_join', c_bool),
    ('token_file', c_char_p),
    ('algorithm', c_char_p),
    ('warnings', POINTER(c_char_p)),
    ('warning_count', c_int32),
]
trm_lookup = CFUNCTYPE(c_char_p, c_void_p, c_char_p)
trm_join_options._fields_ = [
    ('timeout_seconds', c_double),
    ('heartbeat_seconds', c_double),
    ('host_seconds', c_double),
    ('stall_seconds', c_double),
    ('host_name', c_char_p),
    ('insecure', c_bool),
]
trm_rank_entry._fields_ = [
    ('rank', c_int32),
    ('device_id', c_int32),
    ('server', c_int32),
    ('server_id', c_char_p),
    ('host', c_char_p),
    ('device_ip', c_char_p),
]
trm_rank_table_host._fields_ = [
    ('host', c_char_p),
    ('devices', c_int32),
    ('device_ips', POINTER(c_char_p)),
]
trm_launch_write = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_uint64)
trm_launch_role._fields_ = [
    ('role', c_int),
    ('count', c_int32),
    ('command', POINTER(c_char_p)),
    ('restarts', c_int32),
]
trm_launch_options._fields_ = [
    ('ranks', c_int32),
    ('command', POINTER(c_char_p)),
    ('environment', POINTER(c_char_p)),
    ('extra', POINTER(c_char_p)),
    ('directory', c_char_p),
    ('rank_table', c_char_p),
    ('roles', POINTER(trm_launch_role)),
    ('role_count', c_int32),
    ('threads', c_int32),
    ('bind', c_int),
    ('timeout_seconds', c_double),
    ('grace_seconds', c_double),
    ('drain_seconds', c_double),
    ('elastic_least', c_int32),
    ('elastic_restarts', c_int32),
    ('dry_run', c_bool),
    ('write', trm_launch_write),
    ('context', c_void_p),
]
trm_launch_result._fields_ = [
    ('exit_code', c_int32),
    ('failed_rank', c_int32),
    ('failed_role', c_int),
    ('failed_signal', c_int32),
    ('failed_code', c_int32),
    ('seconds', c_double),
]
trm_collective._fields_ = [
    ('kind', c_int),
    ('send', c_void_p),
    ('recv', c_void_p),
    ('count', c_int64),
    ('dtype', c_int),
    ('reduce', c_int),
    ('root', c_int32),
    ('counts', POINTER(c_int64)),
    ('recv_counts', POINTER(c_int64)),
    ('displacements', POINTER(c_int64)),
    ('recv_displacements', POINTER(c_int64)),
    ('tag', c_char_p),
]
trm_comm_options._fields_ = [
    ('engine', c_char_p),
    ('plugin_dir', c_char_p),
    ('algorithm', c_char_p),
    ('deterministic', c_int),
    ('timeout_seconds', c_double),
    ('report_seconds', c_double),
    ('staging_bytes', c_size_t),
    ('spin_microseconds', c_int32),
    ('direct', c_int),
    ('name', c_char_p),
]
trm_message._fields_ = [
    ('receive', c_bool),
    ('peer', c_int32),
    ('buffer', c_void_p),
    ('count', c_int64),
    ('dtype', c_int),
    ('tag', c_char_p),
]
trm_elastic_options._fields_ = [
    ('least', c_int32),
    ('most', c_int32),
    ('decision_seconds', c_double),
    ('join', trm_join_options),
    ('comm', trm_comm_options),
]
trm_membership._fields_ = [
    ('epoch', c_int64),
    ('rank', c_int32),
    ('ranks', c_int32),
    ('lost', c_char * 96),
    ('left', c_char * 96),
    ('joined', c_char * 96),
    ('lost_count', c_int32),
    ('left_count', c_int32),
    ('joined_count', c_int32),
    ('seconds', c_double),
    ('redone_steps', c_int32),
    ('spare_ranks', c_int32),
    ('restored_step', c_int64),
    ('stays', c_bool),
]
trm_node._fields_ = [
    ('id', c_int32),
]
trm_graph_options._fields_ = [
    ('training', c_bool),
]
trm_conv_options._fields_ = [
    ('stride', c_int64 * 2),
    ('dilation', c_int64 * 2),
    ('pad', c_int64 * 4),
    ('groups', c_int64),
]
trm_norm_options._fields_ = [
    ('epsilon', c_double),
    ('momentum', c_double),
]
trm_attention_options._fields_ = [
    ('causal', c_bool),
    ('scale', c_double),
]
trm_experts._fields_ = [
    ('router', trm_node),
    ('up', trm_node),
    ('gate', trm_node),
    ('down', trm_node),
    ('top_k', c_int64),
    ('normalize', c_int),
]
trm_pool_options._fields_ = [
    ('kernel', c_int64 * 2),
    ('stride', c_int64 * 2),
    ('pad', c_int64 * 4),
    ('count_padding', c_bool),
]
trm_xent_options._fields_ = [
    ('label_smoothing', c_double),
    ('use_ignore_index', c_bool),
    ('ignore_index', c_int32),
    ('bias', trm_node),
    ('counted_share', c_double),
]
trm_custom_op._fields_ = [
    ('name', c_char_p),
    ('outputs', c_int32),
    ('infer', CFUNCTYPE(c_int, POINTER(trm_custom_op), POINTER(trm_tensor), c_int, POINTER(trm_tensor), POINTER(trm_error))),
    ('run', CFUNCTYPE(c_int, POINTER(trm_custom_op), POINTER(trm_tensor), c_int, POINTER(trm_tensor), POINTER(trm_error))),
    ('gradient', CFUNCTYPE(None, POINTER(trm_custom_op), c_void_p, POINTER(trm_node), c_int, POINTER(trm_node), POINTER(trm_node), POINTER(trm_node))),
    ('flops', CFUNCTYPE(c_double, POINTER(trm_custom_op), POINTER(trm_tensor), c_int)),
    ('context', c_void_p),
]
trm_split_options._fields_ = [
    ('kind', c_int),
    ('mesh', c_char_p),
    ('plan', c_char_p),
    ('search', c_char_p),
    ('trials', c_int),
    ('trial_seconds', c_double),
    ('measure_seconds', c_double),
    ('save_plan', c_char_p),
    ('save_groups', c_char_p),
    ('input_cuts', c_char_p),
    ('replans', c_bool),
]
trm_pipeline_options._fields_ = [
    ('stages', c_int32),
    ('schedule', c_int),
    ('chunks', c_int32),
    ('begins', c_char_p),
]
trm_parallel_options._fields_ = [
    ('comm', c_void_p),
    ('stand_alone', c_bool),
    ('batch', c_int),
    ('pipeline', trm_pipeline_options),
    ('split', trm_split_options),
    ('sum', c_bool),
    ('wire', c_int),
    ('bucket', c_int),
    ('bucket_bytes', c_int64),
    ('bucket_list', POINTER(c_int32)),
    ('bucket_list_count', c_int32),
    ('shard_optimizer', c_bool),
    ('cooperative', c_int),
    ('sync_batch_norm', c_int32),
    ('layerwise', POINTER(c_char_p)),
    ('layerwise_count', c_int32),
    ('block', c_int32),
    ('broadcast', c_int),
]
trm_loss_scale_options._fields_ = [
    ('on', c_bool),
    ('dynamic', c_bool),
    ('initial', c_double),
    ('grow_by', c_double),
    ('shrink_by', c_double),
    ('grow_every', c_int32),
    ('shrink_after', c_int32),
]
trm_exec_options._fields_ = [
    ('precision', c_int),
    ('optimizer', trm_optimizer_options),
    ('threads', c_int),
    ('seed', c_uint64),
    ('loss_scale', trm_loss_scale_options),
    ('memory_bytes', c_int64),
    ('accumulate', c_int32),
    ('recompute', c_bool),
    ('parallel', trm_parallel_options),
    ('backend', c_char_p),
    ('tuning_file', c_char_p),
    ('retune_seconds', c_double),
    ('choices_file', c_char_p),
    ('fusion', c_int),
    ('initialise', c_int),
    ('share_slots', c_int),
    ('host_processes', c_int32),
    ('loss', trm_node),
    ('outputs', POINTER(trm_node)),
    ('outputs_count', c_int32),
    ('parameters_of', c_void_p),
    ('keep_casts', c_bool),
    ('updated_elsewhere', c_bool),
    ('whole_gradients', c_bool),
    ('blocks', c_int32),
]
trm_loss_scale_state._fields_ = [
    ('scale', c_double),
    ('good', c_int32),
    ('bad', c_int32),
    ('skipped', c_int64),
    ('overflow', c_bool),
]
trm_variable._fields_ = [
    ('name', c_char_p),
    ('kind', c_int),
    ('dtype', c_int),
    ('shape', trm_shape),
]
trm_parallel_info._fields_ = [
    ('rank', c_int32),
    ('size', c_int32),
    ('buckets', c_int32),
    ('bytes', c_int64),
    ('alpha', c_double),
    ('bytes_per_second', c_double),
    ('one_copy', c_bool),
    ('casts', c_int32),
    ('predicted_end_seconds', c_double),
    ('backward_end_seconds', c_double),
    ('cooperative_bytes', c_int64),
    ('always_zero_bytes', c_int64),
]
trm_searched_plan._fields_ = [
    ('searched', c_bool),
    ('text', c_char * 240),
    ('step_seconds', c_double),
    ('data_parallel_step_seconds', c_double),
    ('measured_step_seconds', c_double),
    ('search_seconds', c_double),
]
trm_waiting._fields_ = [
    ('step_seconds', c_double),
    ('communication_seconds', c_double),
    ('imbalance_seconds', c_double),
    ('meetings', c_int64),
]
trm_exec_info._fields_ = [
    ('parameter_count', c_int64),
    ('parameter_bytes', c_int64),
    ('gradient_bytes', c_int64),
    ('slot_bytes', c_int64),
    ('activation_bytes', c_int64),
    ('other_bytes', c_int64),
    ('overhead_bytes', c_int64),
    ('total_bytes', c_int64),
    ('flops', c_double),
    ('predicted_seconds', c_double),
    ('create_seconds', c_double),
    ('steps', c_int32),
    ('threads', c_int32),
    ('backend', c_char_p),
]
trm_peak_memory._fields_ = [
    ('bytes', c_int64),
    ('bytes_per_second', c_double * 4),
]
trm_machine_peak._fields_ = [
    ('threads', c_int32),
    ('float32_flops', c_double),
    ('bfloat16_flops', c_double),
    ('memory', trm_peak_memory * 12),
    ('memory_count', c_int32),
]
trm_step_profile._fields_ = [
    ('name', c_char_p),
    ('kind', c_char_p),
    ('algorithm', c_char_p),
    ('phase', c_char_p),
    ('seconds', c_double),
    ('flops', c_double),
    ('bytes', c_double),
    ('written_bytes', c_double),
    ('first_bytes', c_double),
    ('first_written_bytes', c_double),
    ('work_flops', c_double),
    ('work_float32', c_double),
    ('bfloat16', c_bool),
    ('reuse_bytes', c_double),
    ('same', c_int32),
    ('first_same', c_int32),
]
trm_profile_options._fields_ = [
    ('repeats', c_int32),
    ('beside', c_void_p),
    ('update', c_bool),
    ('stop', POINTER(c_int32)),
]
trm_program_profile._fields_ = [
    ('steps', POINTER(trm_step_profile)),
    ('count', c_int32),
    ('seconds', c_double),
]
trm_context_option._fields_ = [
    ('name', c_char_p),
    ('alias', c_char_p),
    ('values', c_char_p),
    ('least', c_int64),
    ('most', c_int64),
    ('fallback', c_char_p),
    ('modes', c_char_p),
    ('meaning', c_char_p),
]
trm_resnet_options._fields_ = [
    ('depth', c_int32),
    ('classes', c_int64),
    ('stem', c_int),
    ('zero_init_residual', c_bool),
]
trm_lora_options._fields_ = [
    ('rank', c_int64),
    ('alpha', c_double),
    ('dropout', c_double),
    ('targets', c_char_p),
]
trm_vit_options._fields_ = [
    ('layers', c_int64),
    ('width', c_int64),
    ('heads', c_int64),
    ('hidden', c_int64),
    ('patch', c_int64),
    ('dropout', c_double),
    ('epsilon', c_double),
    ('lora', trm_lora_options),
]
trm_language_options._fields_ = [
    ('layers', c_int64),
    ('width', c_int64),
    ('heads', c_int64),
    ('kv_heads', c_int64),
    ('hidden', c_int64),
    ('context', c_int64),
    ('vocabulary', c_int64),
    ('dropout', c_double),
    ('epsilon', c_double),
    ('rotary_theta', c_double),
    ('untied', c_bool),
    ('lazy_embedding', c_bool),
    ('experts', c_int64),
    ('top_experts', c_int64),
    ('balance', c_double),
    ('lora', trm_lora_options),
    ('mask', trm_node),
    ('masking', c_double),
]
trm_click_inputs._fields_ = [
    ('keys', trm_node),
    ('offsets', trm_node),
    ('values', trm_node),
    ('dense', trm_node),
    ('batch', c_int64),
]
trm_field_table._fields_ = [
    ('name', c_char_p),
    ('fields', POINTER(c_int32)),
    ('count', c_int32),
    ('rows', c_int64),
    ('width', c_int64),
    ('init', c_int),
]
trm_recommender_options._fields_ = [
    ('rows', c_int64),
    ('tables', POINTER(trm_field_table)),
    ('tables_count', c_int32),
    ('width', c_int64),
    ('pooling', c_int),
    ('hidden', POINTER(c_int64)),
    ('hidden_count', c_int32),
    ('bottom', POINTER(c_int64)),
    ('bottom_count', c_int32),
    ('cross_layers', c_int32),
    ('cross_rank', c_int64),
    ('stacked', c_bool),
    ('wide_dense', c_int),
    ('table_init', c_int),
    ('layer_init', c_int),
]
trm_network_options._fields_ = [
    ('classes', c_int64),
    ('stem', c_int),
    ('zero_init_residual', c_bool),
    ('vit', trm_vit_options),
]
trm_generator_options._fields_ = [
    ('model', c_char_p),
    ('network', POINTER(trm_language_options)),
]
trm_sampling._fields_ = [
    ('temperature', c_double),
    ('top_k', c_int64),
    ('top_p', c_double),
    ('seed', c_uint64),
]
trm_named_tensor._fields_ = [
    ('name', c_char_p),
    ('tensor', trm_tensor),
]
trm_text_pair._fields_ = [
    ('key', c_char_p),
    ('value', c_char_p),
]
trm_safetensors_entry._fields_ = [
    ('name', c_char_p),
    ('dtype', c_char_p),
    ('rank', c_int32),
    ('dims', POINTER(c_int64)),
    ('offset', c_int64),
    ('bytes', c_int64),
    ('tensor', trm_tensor),
]
trm_checkpoint_info._fields_ = [
    ('global_step', c_int64),
    ('epoch', c_int64),
    ('data_position', c_int64),
    ('seed', c_uint64),
    ('world_size', c_int32),
    ('config_json', c_char_p),
    ('state_json', c_char_p),
    ('sequence', c_int64),
    ('saved_unix_seconds', c_double),
    ('path', c_char_p),
    ('skipped', c_int64),
]
trm_checkpoint_part._fields_ = [
    ('name', c_char_p),
    ('tensors', POINTER(trm_named_tensor)),
    ('count', c_int64),
    ('metadata', POINTER(trm_text_pair)),
    ('metadata_count', c_int64),
    ('read', CFUNCTYPE(c_int, c_void_p, POINTER(trm_named_tensor), c_int64, c_int64, c_void_p, POINTER(trm_error))),
    ('read_context', c_void_p),
]
trm_checkpoint_options._fields_ = [
    ('keep', c_int32),
    ('keep_every_hours', c_double),
    ('background', c_bool),
    ('lock_wait_seconds', c_double),
    ('outwait_lock', c_bool),
    ('outwait_seconds', c_double),
    ('on_saved', CFUNCTYPE(None, c_void_p, c_char_p, c_int64)),
    ('on_saved_context', c_void_p),
]
trm_checkpoint_open_options._fields_ = [
    ('mark_in_use', c_bool),
]
trm_named_scalar._fields_ = [
    ('name', c_char_p),
    ('value', c_double),
]
trm_events_options._fields_ = [
    ('resumed', c_bool),
    ('resume_step', c_int64),
]
trm_graph_event_node._fields_ = [
    ('name', c_char_p),
    ('op', c_char_p),
    ('inputs', POINTER(c_char_p)),
    ('input_count', c_int64),
    ('device', c_char_p),
    ('output_shape', POINTER(trm_shape)),
]
trm_metrics_options._fields_ = [
    ('columns', POINTER(c_char_p)),
    ('column_count', c_int64),
    ('resumed', c_bool),
    ('resume_step', c_int64),
]
trm_npz_entry._fields_ = [
    ('name', c_char_p),
    ('descr', c_char_p),
    ('fortran_order', c_bool),
    ('rank', c_int32),
    ('dims', POINTER(c_int64)),
    ('offset', c_int64),
    ('bytes', c_int64),
    ('tensor', trm_tensor),
]
trm_line_sink = CFUNCTYPE(None, c_void_p, c_char_p)
trm_probe._fields_ = [
    ('path', c_char_p),
    ('is_directory', c_bool),
    ('data', POINTER(c_uint8)),
    ('bytes', c_int64),
]
trm_recogniser._fields_ = [
    ('kind', c_char_p),
    ('name_hint', c_char_p),
    ('matches', CFUNCTYPE(c_bool, POINTER(trm_probe))),
    ('describe', CFUNCTYPE(c_int, POINTER(trm_probe), c_bool, CFUNCTYPE(None, c_void_p, c_char_p), c_void_p, POINTER(trm_error))),
]
trm_inspect_options._fields_ = [
    ('json', c_bool),
    ('more', POINTER(trm_recogniser)),
    ('more_count', c_int64),
    ('other_kinds', c_char_p),
]
trm_huggingface_options._fields_ = [
    ('model', c_char_p),
    ('network', POINTER(trm_language_options)),
    ('vit', POINTER(trm_vit_options)),
    ('tokenizer', c_void_p),
    ('shard_bytes', c_int64),
    ('merge', c_bool),
    ('image_mean', c_double * 3),
    ('image_std', c_double * 3),
]
trm_row_init._fields_ = [
    ('kind', c_int),
    ('value', c_float),
    ('scale', c_float),
    ('stream', c_uint64),
]
trm_admission._fields_ = [
    ('kind', c_int),
    ('min_count', c_int32),
    ('capacity', c_int64),
    ('probability', c_double),
]
trm_expiry._fields_ = [
    ('after_seconds', c_double),
    ('after_ticks', c_int64),
    ('min_score', c_float),
    ('score_decay', c_float),
    ('max_rows', c_int64),
    ('cap', c_int),
    ('min_norm', c_float),
]
trm_placement._fields_ = [
    ('kind', c_int),
    ('parts', c_int32),
    ('first', c_int32),
    ('rows', c_int64),
    ('begin', c_double),
    ('end', c_double),
]
trm_ps_source._fields_ = [
    ('read', CFUNCTYPE(c_bool, c_void_p, c_char_p, c_uint64, c_int, POINTER(c_float))),
    ('context', c_void_p),
]
trm_table_options._fields_ = [
    ('name', c_char_p),
    ('width', c_int32),
    ('dtype', c_int),
    ('round_to_nearest', c_bool),
    ('staleness', c_int32),
    ('seed', c_uint64),
    ('learning_rate', c_double),
    ('optimizer', trm_optimizer_options),
    ('init', trm_row_init),
    ('admission', trm_admission),
    ('expiry', trm_expiry),
    ('placement', trm_placement),
]
trm_partition._fields_ = [
    ('kind', c_int),
    ('max_parts', c_int32),
    ('part_bytes', c_int64),
]
trm_ps_variable._fields_ = [
    ('rows', c_int64),
    ('row_bytes', c_int64),
]
trm_table_stats._fields_ = [
    ('rows', c_int64),
    ('spilled_rows', c_int64),
    ('bytes', c_int64),
    ('reads', c_int64),
    ('read_misses', c_int64),
    ('updates', c_int64),
    ('created', c_int64),
    ('refused', c_int64),
    ('expired', c_int64),
    ('evicted', c_int64),
    ('spilled', c_int64),
    ('unspilled', c_int64),
    ('no_room', c_int64),
    ('lags', c_int64 * 12),
    ('lag_sum', c_int64),
    ('admission_level', c_int32),
]
trm_row_info._fields_ = [
    ('key', c_uint64),
    ('last_tick', c_uint32),
    ('last_time', c_uint32),
    ('count', c_uint32),
    ('version', c_uint32),
    ('score', c_float),
    ('spilled', c_bool),
]
trm_bags._fields_ = [
    ('pooling', c_int),
    ('rows', POINTER(c_float)),
    ('weights', POINTER(c_float)),
    ('offsets', POINTER(c_int64)),
    ('count', c_int64),
    ('width', c_int32),
]
trm_ps_server_options._fields_ = [
    ('server', c_int32),
    ('servers', c_int32),
    ('shards', c_int32),
    ('memory_bytes', c_int64),
    ('listen', c_char_p),
    ('folder', c_char_p),
    ('log_pushes', c_int),
    ('log_sync', c_bool),
    ('spill_folder', c_char_p),
    ('spill_bytes', c_int64),
    ('mode', c_int),
    ('workers', c_int32),
    ('staleness', c_int32),
    ('backup_workers', c_int32),
    ('sum_gradients', c_bool),
    ('staleness_aware', c_bool),
    ('initial', trm_ps_source),
    ('worker_timeout_seconds', c_double),
    ('token', c_void_p),
    ('job_id', c_void_p),
    ('job_origin', c_char_p),
]
trm_ps_client_options._fields_ = [
    ('addresses', POINTER(c_char_p)),
    ('local', POINTER(c_void_p)),
    ('servers', c_int32),
    ('worker', c_int32),
    ('wire', c_int),
    ('pushes_ahead', c_int32),
    ('cache_rows', c_int64),
    ('cache_staleness', c_int32),
    ('ring_bytes', c_size_t),
    ('tcp_only', c_bool),
    ('timeout_seconds', c_double),
    ('retry_seconds', c_double),
    ('token', c_void_p),
    ('job_id', c_void_p),
    ('job_origin', c_char_p),
    ('stopped', CFUNCTYPE(c_bool, c_void_p)),
    ('lost', CFUNCTYPE(c_bool, c_void_p)),
    ('over', CFUNCTYPE(c_bool, c_void_p)),
    ('context', c_void_p),
]
trm_ps_lease._fields_ = [
    ('id', c_int64),
    ('epoch', c_int64),
    ('begin', c_int64),
    ('end', c_int64),
]
trm_ps_push_options._fields_ = [
    ('rate_scale', c_float),
    ('lease', trm_ps_lease),
    ('position', c_int64),
]
trm_ps_lease_options._fields_ = [
    ('samples', c_int64),
    ('lease_samples', c_int64),
    ('epochs', c_int64),
    ('timeout_seconds', c_double),
    ('samples_max', c_int64),
    ('batch', c_int64),
]
trm_ps_client_stats._fields_ = [
    ('lookups', c_int64),
    ('unique_keys', c_int64),
    ('cached_keys', c_int64),
    ('pushes', c_int64),
    ('resent', c_int64),
    ('repeated', c_int64),
    ('reconnects', c_int64),
    ('bytes_sent', c_int64),
    ('bytes_received', c_int64),
    ('global_step', c_int64),
]
trm_ps_worker._fields_ = [
    ('worker', c_int32),
    ('incarnation', c_int32),
    ('batches', c_int64),
    ('active', c_bool),
    ('silent_seconds', c_double),
]
trm_ps_chief._fields_ = [
    ('mine', c_bool),
    ('worker', c_int32),
    ('silent_seconds', c_double),
    ('lease_seconds', c_double),
]
trm_ps_checkpoint_result._fields_ = [
    ('snapshot', c_uint32),
    ('differential', c_bool),
    ('rows', c_int64),
    ('bytes', c_int64),
    ('seconds', c_double),
    ('hold_seconds', c_double),
]
trm_ps_folder_options._fields_ = [
    ('snapshot', c_uint32),
    ('logs', c_int),
    ('table', c_char_p),
    ('key', POINTER(c_uint64)),
    ('initial', trm_ps_source),
]
trm_ps_folder_info._fields_ = [
    ('snapshot', c_uint32),
    ('differential', c_bool),
    ('servers', c_int32),
    ('shards', c_int32),
    ('tables', c_int32),
    ('global_step', c_int64),
    ('logged', c_int64),
]
trm_ps_writer._fields_ = [
    ('worker', c_uint32),
    ('incarnation', c_uint32),
    ('sequence', c_uint64),
    ('tick', c_uint32),
    ('time', c_uint32),
]
trm_ps_row_fn = CFUNCTYPE(c_int, c_void_p, POINTER(trm_row_info), POINTER(c_float), POINTER(c_float))
trm_network = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)
trm_loss = CFUNCTYPE(c_int32, c_void_p, trm_node, c_void_p, c_void_p)
trm_learning_rate._fields_ = [
    ('decay', c_int),
    ('base', c_double),
    ('end', c_double),
    ('gamma', c_double),
    ('every_steps', c_int64),
    ('power', c_double),
    ('warmup_steps', c_int64),
    ('warmup_start', c_double),
    ('total_steps', c_int64),
]
trm_metric._fields_ = [
    ('name', c_char_p),
    ('sum_count', c_int32),
    ('add', CFUNCTYPE(c_int, c_void_p, POINTER(trm_tensor), c_int64, POINTER(trm_batch), POINTER(c_double), POINTER(trm_error))),
    ('value', CFUNCTYPE(c_double, c_void_p, POINTER(c_double))),
    ('context', c_void_p),
]
trm_ps_training._fields_ = [
    ('client', c_void_p),
    ('tables_only', c_bool),
    ('lease_batches', c_int64),
    ('lease_seconds', c_double),
    ('cache_rows', c_int64),
    ('prefetch', c_int),
    ('placement', c_int),
    ('partition', trm_partition),
    ('table', CFUNCTYPE(None, c_void_p, POINTER(trm_table_options))),
    ('context', c_void_p),
]
trm_model_options._fields_ = [
    ('network', trm_network),
    ('network_context', c_void_p),
    ('loss', trm_loss),
    ('loss_context', c_void_p),
    ('data', c_void_p),
    ('learning_rate', trm_learning_rate),
    ('exec', trm_exec_options),
    ('ps', trm_ps_training),
    ('context', c_void_p),
    ('metrics', trm_metric * 8),
    ('evaluation_only', c_bool),
    ('accept_changes', c_bool),
    ('description', c_char_p),
    ('elastic', c_void_p),
    ('elastic_batch', c_int),
]
trm_evaluation._fields_ = [
    ('loss', c_double),
    ('samples', c_int64),
    ('seconds', c_double),
    ('has_top', c_bool),
    ('top1', c_double),
    ('top5', c_double),
    ('has_auc', c_bool),
    ('auc', c_double),
    ('logloss', c_double),
    ('calibration', c_double),
    ('has_tokens', c_bool),
    ('tokens', c_int64),
    ('perplexity', c_double),
    ('bits_per_byte', c_double),
    ('has_accuracy', c_bool),
    ('accuracy', c_double),
    ('metric_count', c_int32),
    ('metrics', trm_named_scalar * 8),
]
trm_prediction_fn = CFUNCTYPE(c_int, c_void_p, POINTER(trm_tensor), c_int64, POINTER(trm_batch), POINTER(trm_error))
trm_progress._fields_ = [
    ('model', c_void_p),
    ('epoch', c_int64),
    ('epochs', c_int64),
    ('step', c_int64),
    ('epoch_steps', c_int64),
    ('global_step', c_uint64),
    ('loss', c_float),
    ('learning_rate', c_double),
    ('loss_scale', POINTER(trm_loss_scale_state)),
    ('step_samples', c_int64),
    ('epoch_samples', c_int64),
    ('samples', c_int64),
    ('step_seconds', c_double),
    ('wait_seconds', c_double),
    ('epoch_seconds', c_double),
    ('seconds', c_double),
    ('busy_seconds', c_double),
    ('data_seconds', c_double),
    ('evaluation', POINTER(trm_evaluation)),
    ('checkpoint', c_char_p),
    ('membership', POINTER(trm_membership)),
    ('stopping', c_bool),
]
trm_hook = CFUNCTYPE(c_int, c_void_p, POINTER(trm_progress), POINTER(trm_error))
trm_callback._fields_ = [
    ('on_begin', trm_hook),
    ('on_epoch_begin', trm_hook),
    ('on_gradients', trm_hook),
    ('on_step_end', trm_hook),
    ('on_epoch_end', trm_hook),
    ('on_evaluated', trm_hook),
    ('on_checkpoint', trm_hook),
    ('on_membership', trm_hook),
    ('on_end', trm_hook),
    ('destroy', CFUNCTYPE(None, c_void_p)),
    ('context', c_void_p),
    ('last', c_bool),
    ('together', c_char_p),
]
trm_train_options._fields_ = [
    ('data', c_void_p),
    ('until_epoch', c_int64),
    ('until_step', c_int64),
    ('sink', c_bool),
    ('profile', c_char_p),
    ('callbacks', trm_callback * 16),
]
trm_print = CFUNCTYPE(c_int, c_char_p)
trm_model_checkpoint_options._fields_ = [
    ('directory', c_char_p),
    ('every_steps', c_int64),
    ('every_seconds', c_double),
    ('every_epochs', c_int64),
    ('writer', trm_checkpoint_options),
]
trm_early_stop_options._fields_ = [
    ('watch', c_int),
    ('patience', c_int64),
    ('min_delta', c_double),
]
trm_report_mark._fields_ = [
    ('step', c_uint64),
    ('samples', c_int64),
    ('membership_epoch', c_int64),
    ('seconds', c_double),
    ('data_seconds', c_double),
    ('rank_seconds', c_double),
]
trm_mean_step._fields_ = [
    ('step_seconds', c_double),
    ('data_wait_seconds', c_double),
    ('rank_wait_seconds', c_double),
    ('samples_per_second', c_double),
]
trm_tensorboard_options._fields_ = [
    ('directory', c_char_p),
    ('every_steps', c_int64),
    ('histogram_epochs', c_int64),
    ('graph', c_bool),
]
trm_model_fn = CFUNCTYPE(c_int, c_int, POINTER(trm_model_options), c_void_p, POINTER(trm_error))
trm_input_context._fields_ = [
    ('mode', c_int),
    ('pipelines', c_int32),
    ('index', c_int32),
    ('seed', c_uint64),
]
trm_input_fn = CFUNCTYPE(c_int, POINTER(trm_input_context), c_void_p, POINTER(c_void_p), POINTER(trm_error))
trm_ps_strategy._fields_ = [
    ('lend', c_int),
    ('server', trm_ps_server_options),
    ('client', trm_ps_client_options),
    ('training', trm_ps_training),
]
trm_run_config._fields_ = [
    ('model_dir', c_char_p),
    ('warm_start_from', c_char_p),
    ('cluster', c_void_p),
    ('distribute', POINTER(trm_ps_strategy)),
    ('token', c_void_p),
    ('tf_random_seed', c_uint64),
    ('save_summary_steps', c_int64),
    ('checkpoints', trm_model_checkpoint_options),
    ('log_step_count_steps', c_int64),
    ('iterations_per_loop', c_int64),
    ('precision_mode', c_char_p),
    ('session_creation_timeout_secs', c_double),
    ('export_bytes', c_int64),
    ('print', trm_print),
    ('on_evaluated', CFUNCTYPE(None, c_void_p, c_uint64, POINTER(trm_evaluation))),
    ('context', c_void_p),
]
trm_train_spec._fields_ = [
    ('input_fn', trm_input_fn),
    ('params', c_void_p),
    ('max_steps', c_int64),
    ('epochs', c_int64),
    ('callbacks', trm_callback * 12),
]
trm_exporter._fields_ = [
    ('kind', c_int),
    ('name', c_char_p),
    ('format', c_char_p),
    ('metric', c_char_p),
    ('exports_to_keep', c_int32),
]
trm_eval_spec._fields_ = [
    ('input_fn', trm_input_fn),
    ('params', c_void_p),
    ('steps', c_int64),
    ('name', c_char_p),
    ('start_delay_secs', c_double),
    ('throttle_secs', c_double),
    ('exporters', trm_exporter * 8),
]
trm_job_result._fields_ = [
    ('role', c_int),
    ('global_step', c_uint64),
    ('has_evaluation', c_bool),
    ('evaluation', trm_evaluation),
    ('evaluated_step', c_uint64),
    ('least_updates', c_int64),
    ('most_updates', c_int64),
    ('lookups', c_int64),
    ('unique_keys', c_int64),
    ('cached_keys', c_int64),
]
trm_top_k._fields_ = [
    ('hits', c_int64 * 5),
    ('samples', c_int64),
]
trm_auc_values._fields_ = [
    ('auc', c_double),
    ('logloss', c_double),
    ('calibration', c_double),
    ('samples', c_int64),
    ('nans', c_int64),
]
trm_planner_options._fields_ = [
    ('ranks', c_int32),
    ('hosts', c_int32),
    ('links', c_char_p),
    ('own_devices', c_bool),
    ('guess_links', c_bool),
    ('measure', c_int),
    ('frontier', c_int),
    ('measure_seconds', c_double),
    ('refresh', c_bool),
    ('extra_candidates', c_int32),
    ('remeasures', c_bool),
    ('stages', c_int32),
    ('micro_batches', c_int32),
    ('chunks', c_int32),
    ('schedule', c_char_p),
    ('stage_begins', c_char_p),
    ('stages_gain', c_double),
    ('deterministic', c_int),
    ('stop', POINTER(c_int32)),
]
trm_planner_info._fields_ = [
    ('mesh', c_char * 48),
    ('ranks', c_int32),
    ('infeasible', c_bool),
    ('step_seconds', c_double),
    ('samples_per_second', c_double),
    ('memory_bytes', c_double),
    ('compiled_bytes', c_double),
    ('lower_bound', c_double),
    ('gap', c_double),
    ('solve_seconds', c_double),
    ('search_seconds', c_double),
    ('total_seconds', c_double),
    ('data_parallel_seconds', c_double),
    ('tried', c_int32),
    ('tried_within', c_double),
    ('meshes', c_int32),
    ('operators', c_int32),
    ('measured', c_int32),
    ('measurements', c_int32),
    ('stages', c_int32),
    ('micro_batches', c_int32),
    ('chunks', c_int32),
]
trm_planner_candidate._fields_ = [
    ('name', c_char_p),
    ('step_seconds', c_double),
    ('first_seconds', c_double),
    ('bytes', c_double),
]
trm_plan_info._fields_ = [
    ('mesh', c_char * 128),
    ('ranks', c_int32),
    ('graph', c_uint64),
    ('operators', c_int64),
    ('cut', c_int64),
    ('pinned', c_int64),
    ('stores', c_int64),
    ('stages', c_int32),
    ('chunks', c_int32),
    ('micro_batches', c_int32),
    ('schedule', c_int),
    ('recompute', c_bool),
    ('begins', c_char * 8192),
]
trm_simulation_options._fields_ = [
    ('largest', c_int32),
    ('straggler', c_double),
    ('json', c_bool),
    ('trace', c_char_p),
]
trm_planner_run_result._fields_ = [
    ('seconds', c_double),
    ('median_seconds', c_double),
    ('parameter_bytes', c_int64),
    ('gradient_bytes', c_int64),
    ('slot_bytes', c_int64),
    ('activation_bytes', c_int64),
    ('total_bytes', c_int64),
    ('resident_bytes', c_int64),
    ('loss', c_float),
]
trm_planner_profile = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_char_p, c_double)
trm_planner_run_options._fields_ = [
    ('plan', c_char_p),
    ('steps', c_int32),
    ('profile', trm_planner_profile),
    ('context', c_void_p),
]
trm_planner_comparison._fields_ = [
    ('turns', c_int32),
    ('fastest', c_int32),
    ('seconds', c_double * 8),
    ('ahead', c_double * 8),
    ('resolution', c_double * 8),
]
trm_planner_compare_options._fields_ = [
    ('plans', POINTER(c_char_p)),
    ('count', c_int32),
    ('steps', c_int32),
    ('seconds', c_double),
]
trm_hardware_plan_options._fields_ = [
    ('model', c_char_p),
    ('preset', c_char_p),
    ('sizes', trm_language_options),
    ('hardware', c_char_p),
    ('hardware_name', c_char_p),
    ('devices', c_int64),
    ('batch', c_int64),
    ('context', c_int64),
    ('products', c_char_p),
    ('memory_bytes', c_double),
    ('narrow_gradients', c_bool),
    ('whole_optimizer', c_bool),
    ('plan', c_char_p),
]
trm_hardware_plan_info._fields_ = [
    ('fits', c_bool),
    ('step_seconds', c_double),
    ('tokens_per_second', c_double),
    ('utilisation', c_double),
    ('memory_bytes', c_double),
    ('priced', c_double),
    ('search_seconds', c_double),
    ('given_seconds', c_double),
]
trm_verify_options._fields_ = [
    ('steps', c_int32),
    ('tolerance', c_double),
    ('factor', c_double),
    ('bitwise', c_bool),
]
trm_verify_tensor._fields_ = [
    ('kind', c_int),
    ('name', c_char_p),
    ('count', c_int64),
    ('error', c_double),
    ('largest', c_double),
    ('rounding', c_double),
    ('same_bits', c_bool),
    ('agrees', c_bool),
]
trm_verification._fields_ = [
    ('tensors', POINTER(trm_verify_tensor)),
    ('count', c_int32),
    ('agrees', c_bool),
    ('same_bits', c_bool),
    ('chaos', c_double),
]

# The enum of each member and argument that is one.
ENUM_OF = {
    ('trm_tensor', 'dtype'): 'trm_dtype',
    ('trm_optimizer_options', 'kind'): 'trm_optimizer_kind',
    ('trm_transform', 'kind'): 'trm_transform_kind',
    ('trm_transform', 'align'): 'trm_resize_align',
    ('trm_transform', 'dtype'): 'trm_dtype',
    ('trm_dataset_spec', 'usage'): 'trm_usage',
    ('trm_dataset_spec', 'augment'): 'trm_switch',
    ('trm_column', 'role'): 'trm_column_role',
    ('trm_click_options', 'dense'): 'trm_dense_form',
    ('trm_click_options', 'header'): 'trm_header_line',
    ('trm_text_options', 'boundary_tokens'): 'trm_switch',
    ('trm_cluster_info', 'role'): 'trm_role',
    ('trm_launch_role', 'role'): 'trm_role',
    ('trm_launch_options', 'bind'): 'trm_switch',
    ('trm_launch_result', 'failed_role'): 'trm_role',
    ('trm_collective', 'kind'): 'trm_collective_kind',
    ('trm_collective', 'dtype'): 'trm_dtype',
    ('trm_collective', 'reduce'): 'trm_reduction',
    ('trm_comm_options', 'deterministic'): 'trm_deterministic',
    ('trm_comm_options', 'direct'): 'trm_switch',
    ('trm_message', 'dtype'): 'trm_dtype',
    ('trm_experts', 'normalize'): 'trm_switch',
    ('trm_split_options', 'kind'): 'trm_split_kind',
    ('trm_split_options', 'trials'): 'trm_switch',
    ('trm_pipeline_options', 'schedule'): 'trm_schedule',
    ('trm_parallel_options', 'batch'): 'trm_batch_scope',
    ('trm_parallel_options', 'wire'): 'trm_dtype',
    ('trm_parallel_options', 'bucket'): 'trm_bucket_mode',
    ('trm_parallel_options', 'cooperative'): 'trm_cooperative',
    ('trm_parallel_options', 'broadcast'): 'trm_switch',
    ('trm_exec_options', 'precision'): 'trm_precision',
    ('trm_exec_options', 'fusion'): 'trm_switch',
    ('trm_exec_options', 'initialise'): 'trm_switch',
    ('trm_exec_options', 'share_slots'): 'trm_switch',
    ('trm_variable', 'kind'): 'trm_variable_kind',
    ('trm_variable', 'dtype'): 'trm_dtype',
    ('trm_resnet_options', 'stem'): 'trm_stem',
    ('trm_field_table', 'init'): 'trm_init',
    ('trm_recommender_options', 'pooling'): 'trm_bag_pooling',
    ('trm_recommender_options', 'wide_dense'): 'trm_switch',
    ('trm_recommender_options', 'table_init'): 'trm_init',
    ('trm_recommender_options', 'layer_init'): 'trm_init',
    ('trm_network_options', 'stem'): 'trm_stem',
    ('trm_row_init', 'kind'): 'trm_row_init_kind',
    ('trm_admission', 'kind'): 'trm_admission_kind',
    ('trm_expiry', 'cap'): 'trm_cap_policy',
    ('trm_placement', 'kind'): 'trm_placement_kind',
    ('trm_table_options', 'dtype'): 'trm_dtype',
    ('trm_partition', 'kind'): 'trm_partition_kind',
    ('trm_bags', 'pooling'): 'trm_bag_pooling',
    ('trm_ps_server_options', 'log_pushes'): 'trm_switch',
    ('trm_ps_server_options', 'mode'): 'trm_ps_mode',
    ('trm_ps_client_options', 'wire'): 'trm_dtype',
    ('trm_ps_folder_options', 'logs'): 'trm_switch',
    ('trm_learning_rate', 'decay'): 'trm_decay',
    ('trm_ps_training', 'prefetch'): 'trm_switch',
    ('trm_ps_training', 'placement'): 'trm_placement_kind',
    ('trm_model_options', 'elastic_batch'): 'trm_elastic_batch',
    ('trm_early_stop_options', 'watch'): 'trm_watch',
    ('trm_input_context', 'mode'): 'trm_run_mode',
    ('trm_ps_strategy', 'lend'): 'trm_ps_lend',
    ('trm_exporter', 'kind'): 'trm_exporter_kind',
    ('trm_job_result', 'role'): 'trm_role',
    ('trm_planner_options', 'measure'): 'trm_switch',
    ('trm_planner_options', 'frontier'): 'trm_switch',
    ('trm_planner_options', 'deterministic'): 'trm_deterministic',
    ('trm_plan_info', 'schedule'): 'trm_schedule',
    ('trm_verify_tensor', 'kind'): 'trm_verify_kind',
    ('trm_status_name', 0): 'trm_status',
    ('trm_status_text', 0): 'trm_status',
    ('trm_status_exit_code', 0): 'trm_status',
    ('trm_dtype_bytes', 0): 'trm_dtype',
    ('trm_dtype_name', 0): 'trm_dtype',
    ('trm_log_set_sink', 2): 'trm_log_level',
    ('trm_dataset_cifar10', 1): 'trm_usage',
    ('trm_dataset_shapes', 1): 'trm_usage',
    ('trm_dataset_image_folder', 1): 'trm_usage',
    ('trm_dataset_tfrecord_imagenet', 1): 'trm_usage',
    ('trm_transform_resize', 2): 'trm_resize_align',
    ('trm_transform_resize_shorter', 1): 'trm_resize_align',
    ('trm_transform_type_cast', 0): 'trm_dtype',
    ('trm_dataset_shard', 3): 'trm_shard_mode',
    ('trm_dataset_clicks', 1): 'trm_usage',
    ('trm_dataset_tokens', 1): 'trm_usage',
    ('trm_dataset_text', 1): 'trm_usage',
    ('trm_dataset_json_lines', 1): 'trm_usage',
    ('trm_role_name', 0): 'trm_role',
    ('trm_cluster_task_count', 1): 'trm_role',
    ('trm_cluster_task_address', 1): 'trm_role',
    ('trm_rank_table_make', 2): 'trm_rank_table_form',
    ('trm_reduction_name', 0): 'trm_reduction',
    ('trm_collective_name', 0): 'trm_collective_kind',
    ('trm_comm_allreduce', 3): 'trm_dtype',
    ('trm_comm_allreduce', 4): 'trm_reduction',
    ('trm_comm_broadcast', 3): 'trm_dtype',
    ('trm_comm_send', 3): 'trm_dtype',
    ('trm_comm_recv', 3): 'trm_dtype',
    ('trm_elastic_can_recover', 0): 'trm_status',
    ('trm_distribute_all_reduce', 3): 'trm_reduction',
    ('trm_input', 2): 'trm_dtype',
    ('trm_parameter', 3): 'trm_init',
    ('trm_state', 2): 'trm_dtype',
    ('trm_state', 4): 'trm_init',
    ('trm_bag_pool', 4): 'trm_bag_pooling',
    ('trm_gelu', 2): 'trm_gelu_form',
    ('trm_cast', 2): 'trm_dtype',
    ('trm_ps_place', 3): 'trm_placement_kind',
    ('trm_ps_chief_request', 1): 'trm_ps_chief_claim',
    ('trm_event_name', 0): 'trm_training_event',
    ('trm_event_members', 0): 'trm_training_event',
    ('trm_verify_kind_name', 0): 'trm_verify_kind',
}

# name: (type of the value, types of the arguments, names of the arguments, docstring)
FUNCTIONS = {
    'trm_status_name': (c_char_p, (c_int,),
        'status',
        """Returns the name of a status ("TRM_IO").
          owns     static string
          threads  any
        """),
    'trm_status_text': (c_char_p, (c_int,),
        'status',
        """Returns the meaning of a status in words ("a file could not be read or written").
          owns     static string
          threads  any
        """),
    'trm_status_exit_code': (c_int, (c_int,),
        'status',
        """Returns the process exit code for a status: 0 done, 1 job failed, 2 wrong use, 3 bad data or
        file, 4 out of memory or disk, 5 a peer failed or timed out.
          threads  any
        """),
    'trm_error_exit': (None, (POINTER(trm_error),),
        'err',
        """Writes the error's sentence to stderr and ends the process with the exit code of its status. For
        programs, not for libraries.
        """),
    'trm_free': (None, (c_void_p,),
        'memory',
        """Frees text or an array that a function of this library gave to its caller. NULL is accepted.
          threads  any
        """),
    'trm_dtype_bytes': (c_size_t, (c_int,),
        'dtype',
        """Returns the bytes of one element; 0 for an unknown type.
          threads  any
        """),
    'trm_dtype_name': (c_char_p, (c_int,),
        'dtype',
        """Returns the name of a type ("float32").
          owns     static string
          threads  any
        """),
    'trm_shape_make': (trm_shape, (c_int32, POINTER(c_int64),),
        'rank dim',
        """Makes a shape from an array of dimensions.
          param    dim: [rank] sizes, outermost first; with a rank above TRM_MAX_RANK the shape counts -1
                   elements, and functions that take it refuse it
          threads  any
        """),
    'trm_shape_count': (c_int64, (POINTER(trm_shape),),
        'shape',
        """Returns the number of elements; -1 if a dimension is negative, the rank is too high, or the
        product does not fit int64.
          threads  any
        """),
    'trm_shape_equal': (c_bool, (POINTER(trm_shape), POINTER(trm_shape),),
        'a b',
        """Returns true if both shapes have the same rank and dimensions.
          threads  any
        """),
    'trm_shape_format': (c_char_p, (POINTER(trm_shape), c_char_p, c_size_t,),
        'shape text size',
        """Writes a shape as "[2, 3, 4]", cut off at `size` bytes and always terminated.
          param    text: [size], written
          returns  text
          threads  any
        """),
    'trm_tensor_bytes': (c_int64, (POINTER(trm_tensor),),
        'tensor',
        """Returns the bytes of all elements of a tensor; -1 where trm_shape_count gives -1.
          threads  any
        """),
    'trm_log_set_sink': (None, (trm_log_sink, c_void_p, c_int,),
        'sink context most_verbose',
        """Sends log lines up to level `most_verbose` to `sink`. Until the first call, warnings and errors
        go to stderr.
          param    sink: NULL = lines are dropped
                   context: for `sink`
          threads  call it before all other functions
        """),
    'trm_version': (c_char_p, (),
        '',
        """Returns the version of the library ("0.2.0").
          owns     static string
          threads  any
        """),
    'trm_nearest_word': (c_char_p, (c_char_p, POINTER(c_char_p), c_int32,),
        'word words count',
        """Returns the word of `words` that was probably meant by `word`: the one with the fewest letters to
        insert, delete, replace or swap, or of which `word` is the beginning or the initials; NULL = none
        is near.
          param    words: [count]
          owns     the caller of words
          threads  any
          level    expert
        """),
    'trm_machine_get': (None, (POINTER(trm_machine),),
        'out',
        """Fills in what this machine and this build offer. Takes microseconds.
          threads  any
        """),
    'trm_peak_bytes': (c_int64, (),
        '',
        """Returns the peak resident memory of this process in bytes.
          threads  any
        """),
    'trm_resident_bytes': (c_int64, (),
        '',
        """Returns the present resident memory of this process in bytes.
          threads  any
        """),
    'trm_shared_bytes': (c_int64, (),
        '',
        """Returns the part of the resident memory that other processes allocated, in bytes (memory that
        ranks share is in the resident memory of each).
          threads  any
        """),
    'trm_now_seconds': (c_double, (),
        '',
        """Returns monotonic time in seconds.
          threads  any
        """),
    'trm_dataset_cifar10': (c_int, (c_char_p, c_int, POINTER(c_void_p), POINTER(trm_error),),
        'path usage out err',
        """Opens CIFAR-10 in its binary form: records of a label byte and 3072 planar R, G, B bytes. Train
        reads data_batch_1.bin to data_batch_5.bin, test test_batch.bin, all every *.bin whose name
        contains "batch", by name. Sizes and labels are checked here, so that a damaged file is named
        before training starts. Samples are uint8 images [32, 32, 3].
          param    path: folder
          errors   IO, CORRUPT (with file and place), NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_shapes': (c_int, (POINTER(trm_shapes_options), c_int, POINTER(c_void_p), POINTER(trm_error),),
        'options usage out err',
        """Opens the generated set of shapes. Samples are uint8 images [32, 32, 3].
          param    options: NULL = defaults
          errors   INVALID (a count outside of 1 to 100 million), NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_shapes_write': (c_int, (POINTER(trm_shapes_options), c_char_p, POINTER(trm_error),),
        'options path err',
        """Writes the generated set as CIFAR-10 files: five train files, test_batch.bin, batches.meta.txt,
        and records.txt, which holds the number of records of each file.
          param    options: NULL = defaults
                   path: folder
          errors   INVALID (there are such files without records.txt), IO, NOSPACE, NOMEM
        """),
    'trm_dataset_random': (c_int, (POINTER(trm_random_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Opens a random batch that repeats for ever: float32 images, roughly normal, and uniform labels.
        Takes no transforms.
          errors   INVALID, NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_image_folder': (c_int, (c_char_p, c_int, POINTER(c_void_p), POINTER(trm_error),),
        'path usage out err',
        """Opens a folder of images, path/class/name.jpeg (or .jpg, .png, in upper or lower case): the label
        is the index of the class folder in byte order of the names. Samples are encoded; the first
        transform must be trm_transform_decode.
          param    usage: if the folder has subfolders train and val (or test): which one; TRM_USAGE_ALL
                   reads both
          errors   IO (also: no images), CORRUPT (a class that the training set lacks), UNSUPPORTED
                   (other kinds of files), NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_tfrecord_imagenet': (c_int, (c_char_p, c_int, POINTER(c_void_p), POINTER(trm_error),),
        'path usage out err',
        """Opens ImageNet as TFRecords of tf.Example: train-*-of-* (train), validation-*-of-* (test), with
        the keys image/encoded and image/class/label. Labels 1 to 1000 become 0 to 999; 0 (background) is
        an error. Checksums of the records' lengths are checked here, those of their content when they
        are read.
          errors   IO, CORRUPT (with file and offset), NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_callback': (c_int, (POINTER(trm_data_source), POINTER(c_void_p), POINTER(trm_error),),
        'source out err',
        """Opens a dataset of samples that `source->read` writes. A batch of N has fields [N, shape of a
        sample]. Two fields "image" (uint8 [height, width, 3]) and "label" (int32 []) take the image
        transforms, too.
          errors   INVALID (a field without name, type or size), NOMEM
          owns     caller: trm_dataset_destroy(*out); struct and names are copied, the context is taken
                   unless the call fails
        """),
    'trm_dataset_arrays': (c_int, (POINTER(trm_batch_field), c_int32, c_int64, POINTER(c_void_p), POINTER(trm_error),),
        'arrays count classes out err',
        """Opens a dataset of samples in arrays.
          param    arrays: [count]; the first dimension of each counts the samples
                   classes: of an int32 field "label"; 0 = none
          errors   INVALID (arrays of unequal length, without data or type), NOMEM
          owns     caller: trm_dataset_destroy(*out); the arrays' data are borrowed until then
        """),
    'trm_dataset_destroy': (None, (c_void_p,),
        'dataset',
        """Ends the dataset's threads and frees it with its batches. NULL is accepted."""),
    'trm_transform_decode': (trm_transform, (c_bool,),
        'exact',
        """Decodes JPEG and PNG, recognised by content, to RGB. Gray, palette and CMYK content is converted,
        alpha dropped. Other content, an image that ends early, and damage that the decoders notice (JPEG
        has no checksum) are TRM_CORRUPT with the file's name.
          param    exact: false = uses libjpeg-turbo's faster chroma upsampling, and decodes at 1/2, 1/4
                   or 1/8 where the following crop or resize still shrinks the result
        """),
    'trm_transform_random_crop': (trm_transform, (c_int64, c_int64, c_int64,),
        'height width padding',
        """Cuts out a uniformly placed window of height x width pixels.
          param    width: 0 = height
                   padding: 0 = none; zeros added on each side first
        """),
    'trm_transform_random_resized_crop': (trm_transform, (c_int64, c_int64,),
        'height width',
        """Cuts out a window of 0.08 to 1 of the area and of ratio 3/4 to 4/3 (log-uniform; ten tries, then
        the largest central one), resized to height x width. The caller may change area, ratio and align
        in the returned value.
          param    width: 0 = height
        """),
    'trm_transform_center_crop': (trm_transform, (c_int64, c_int64,),
        'height width',
        """Cuts out the middle of an image that is at least height x width.
          param    width: 0 = height
        """),
    'trm_transform_random_flip': (trm_transform, (c_double,),
        'probability',
        """Mirrors left and right with a probability."""),
    'trm_transform_resize': (trm_transform, (c_int64, c_int64, c_int,),
        'height width align',
        """Resizes to height x width. A uint8 image stays uint8 (rounded to nearest), as in OpenCV and
        torchvision.
          param    width: 0 = height
                   align: where bilinear sampling reads
        """),
    'trm_transform_resize_shorter': (trm_transform, (c_int64, c_int,),
        'size align',
        """Resizes so that the shorter side has `size` pixels and the ratio stays.
          param    align: where bilinear sampling reads
        """),
    'trm_transform_rescale': (trm_transform, (c_double, c_double,),
        'scale shift',
        """Computes x * scale + shift; from here on the image is float32."""),
    'trm_transform_normalize': (trm_transform, (c_double * 3, c_double * 3,),
        'mean std',
        """Computes (x - mean) / std for each of the channels R, G, B."""),
    'trm_transform_hwc2chw': (trm_transform, (),
        '',
        """Makes batches [N, C, H, W]; without it they are [N, H, W, C]."""),
    'trm_transform_type_cast': (trm_transform, (c_int,),
        'dtype',
        """Converts the image to float32, float16 or bfloat16."""),
    'trm_dataset_seed': (c_int, (c_void_p, c_uint64, POINTER(trm_error),),
        'dataset seed err',
        """Sets the seed of order and augmentation; without this call it is 0.
          errors   INVALID
        """),
    'trm_dataset_shard': (c_int, (c_void_p, c_int64, c_int64, c_int, POINTER(trm_error),),
        'dataset count index mode err',
        """Reads shard `index` of `count`: places index, index + count, ... of the one global order. A model
        with ranks shards a dataset itself unless the program has called this (training wraps, evaluation
        pads).
          param    count: 1: every rank reads all of it
                   index: 0 to count - 1
                   mode: how the last samples are shared
          errors   INVALID
        """),
    'trm_dataset_shuffle': (c_int, (c_void_p, c_int64, POINTER(trm_error),),
        'dataset window err',
        """Reads in a new order each epoch: one permutation of the whole source, the same on all shards.
          param    window: above 1: also shuffles within a window of so many samples of the shard
          errors   INVALID
        """),
    'trm_dataset_map': (c_int, (c_void_p, POINTER(trm_transform), c_int32, POINTER(trm_error),),
        'dataset transforms count err',
        """Appends transforms of images to the chain, at most 16 in all. Geometry comes before rescaling and
        normalising.
          param    transforms: [count], copied
          errors   INVALID, NOMEM
        """),
    'trm_dataset_transform': (c_int, (c_void_p, trm_sample_transform, c_void_p, POINTER(trm_error),),
        'dataset transform context err',
        """Appends a transform of the program's own, at most 4. Fields without one row a sample (ragged
        keys) are an error of trm_dataset_check.
          errors   INVALID
          owns     context is borrowed until trm_dataset_destroy
        """),
    'trm_dataset_batch': (c_int, (c_void_p, c_int64, c_bool, POINTER(trm_error),),
        'dataset size drop_remainder err',
        """Sets the number of samples in a batch.
          param    size: samples of this shard, at least 1
                   drop_remainder: false = the last batch of an epoch keeps its shape; rows from
                   batch->samples on are zero, with int32 labels -1 (trm_xent_options.ignore_index)
          errors   INVALID
        """),
    'trm_dataset_repeat': (c_int, (c_void_p, c_int64, POINTER(trm_error),),
        'dataset passes err',
        """Ends after `passes` epochs (TRM_END) in place of each one. An epoch stays one pass: batch->epoch
        counts passes, and trm_dataset_epoch_batches is of one.
          param    passes: 0 = it never ends
          errors   INVALID
        """),
    'trm_dataset_prefetch': (c_int, (c_void_p, c_int64, c_int64, POINTER(trm_error),),
        'dataset depth threads err',
        """Fills whole batches ahead with `threads` threads. Without this call trm_dataset_next fills the
        batch itself.
          param    depth: batches in all, at least one a thread; 0 = no prefetch
          errors   INVALID
        """),
    'trm_dataset_next': (c_int, (c_void_p, POINTER(POINTER(trm_batch)), POINTER(trm_error),),
        'dataset out err',
        """Gives the next batch. The call after TRM_END begins the next epoch. An unreadable sample is an
        error with file and record, and the position stays at that batch. After the first call nothing is
        allocated, except that scratch memory for encoded images grows to the largest image.
          errors   END (the epoch is over), IO, CORRUPT, NOMEM, those of trm_dataset_check
          owns     the dataset: *out is valid until the next call on it
        """),
    'trm_batch_tensor': (POINTER(trm_tensor), (POINTER(trm_batch), c_char_p,),
        'batch name',
        """Returns the field of this name; NULL if there is none.
          owns     the batch
        """),
    'trm_dataset_position': (None, (c_void_p, POINTER(c_int64), POINTER(c_int64),),
        'dataset epoch batch_index',
        """Gives the position of the next batch: after the k-th batch of epoch e it is (e, k), also at its
        end (trm_dataset_next then returns TRM_END first).
          param    epoch, batch_index: both from 0, written
        """),
    'trm_dataset_seek': (c_int, (c_void_p, c_int64, c_int64, POINTER(trm_error),),
        'dataset epoch batch_index err',
        """Continues from a position; the batches are bit for bit those of a run without a stop.
          param    epoch, batch_index: both from 0, as trm_dataset_position gives them
          errors   INVALID
        """),
    'trm_dataset_check': (c_int, (c_void_p, POINTER(trm_error),),
        'dataset err',
        """Checks that the whole pipeline fits together, as trm_dataset_next does first. Refining calls are
        errors afterwards.
          errors   INVALID (naming the step that does not fit), NOMEM
        """),
    'trm_dataset_epoch_batches': (c_int64, (c_void_p,),
        'dataset',
        """Returns the batches in an epoch of this shard; 0 if the pipeline does not check."""),
    'trm_dataset_sample_count': (c_int64, (c_void_p,),
        'dataset',
        """Returns the samples of the whole source."""),
    'trm_dataset_class_count': (c_int64, (c_void_p,),
        'dataset',
        """Returns the classes of the source's label; 0 if there are none."""),
    'trm_dataset_field': (c_bool, (c_void_p, c_int32, POINTER(trm_batch_field),),
        'dataset index out',
        """Gives name, type and shape of a field of a batch; tensor.data is NULL. A ragged field has its
        largest size.
          param    index: from 0
          returns  false after the last field, or if the pipeline does not check
        """),
    'trm_dataset_buffer_bytes': (c_int64, (c_void_p,),
        'dataset',
        """Returns the bytes of all batches that reading keeps: those made ahead and the current one,
        without images that threads are decoding; 0 if the pipeline does not check.
        """),
    'trm_dataset_json': (c_void_p, (c_void_p,),
        'dataset',
        """Returns the whole pipeline as a JSON object: source, files, count, refinements, transforms,
        fields.
          returns  NULL when memory is out
          owns     caller: trm_free
        """),
    'trm_dataset_open': (c_int, (POINTER(trm_dataset_spec), POINTER(c_void_p), POINTER(trm_error),),
        'spec out err',
        """Opens a dataset with the usual pipeline. Train: permuted, augmented (32 pixels: crop and flip;
        else decode, random resized crop and flip), shards wrap, the remainder is dropped. Test: in
        order, not augmented (resize and centre crop), shards pad, the remainder is kept.
          errors   INVALID (nothing recognised, with what was expected), those of the source
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_click_file': (c_int, (c_char_p, c_char_p, POINTER(trm_click_options), POINTER(c_void_p), POINTER(trm_error),),
        'kind path options out err',
        """Opens files of click data. A bad row is reported with its line or record when it is read.

          criteo            label, 13 integers, 26 categories, tab-separated, no header
          avazu             id (skipped), click, hour (its last two digits), C1 to C21: 22 keys; with or
                            without a header
          csv               any separator, quotes around fields (but no line breaks in them)
          libsvm            "label index:value ..." gives one field of bags, "label field:index:value ..."
                            (libffm) one for each field. Labels are 1 and +1, 0 and -1. Indices are the
                            keys unless buckets or a vocabulary is given
          slots             "slot:value ...", as Paddle's recommendation models read: the slot click or
                            label is the label, dense_feature or dense has numbers (in each row as many
                            as in the first), any other is a field of bags whose values are hashed.
                            Fields are in the order of the slots' numbers, then names; options->columns
                            chooses slots, roles and their order
          tfrecord-clicks   TFRecords of tf.Example; options->columns names the features. Dense inputs and
                            label are float or int64 lists, keys are bytes (hashed) or int64 (as they
                            are, unless bounded)
          param    kind: a name of the list
                   path: a file, or a folder with train and test, whose training part is read
                   options: NULL = defaults
          errors   IO, CORRUPT, INVALID (kind, options, columns), NOMEM, with the file
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_vocabulary_build': (c_int, (c_char_p, c_char_p, POINTER(trm_click_options), c_int64, POINTER(c_void_p), POINTER(trm_error),),
        'kind path options min_count out err',
        """Reads a whole file, or the training part of a folder, and numbers the values that come at least
        min_count times, by field, in order of appearance.
          param    kind: as for trm_dataset_click_file
                   options: as for reading
          errors   those of the source and of its rows
          owns     caller: trm_vocabulary_destroy(*out)
        """),
    'trm_vocabulary_destroy': (None, (c_void_p,),
        'vocabulary',
        """Frees the vocabulary. NULL is accepted."""),
    'trm_vocabulary_save': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'vocabulary path err',
        """Writes a vocabulary as text, complete or not at all: a line "trireme-vocabulary 1 FIELDS SEED",
        then "field hash" lines in order of the ids.
          errors   IO, NOSPACE
        """),
    'trm_vocabulary_load': (c_int, (c_char_p, POINTER(c_void_p), POINTER(trm_error),),
        'path out err',
        """Reads a vocabulary.
          errors   IO, CORRUPT (with the line), NOMEM
          owns     caller: trm_vocabulary_destroy(*out)
        """),
    'trm_vocabulary_fields': (c_int32, (c_void_p,),
        'vocabulary',
        """Returns the number of fields."""),
    'trm_vocabulary_rows': (c_int64, (c_void_p, c_int32,),
        'vocabulary field',
        """Returns the rows that a table of this field needs: its ids and 0.
          param    field: 0 to trm_vocabulary_fields - 1
        """),
    'trm_dataset_clicks': (c_int, (POINTER(trm_click_generator_options), c_int, POINTER(c_void_p), POINTER(trm_error),),
        'options usage out err',
        """Opens generated clicks of a planted model.
          param    options: NULL = defaults
          errors   INVALID, NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_random_clicks': (c_int, (POINTER(trm_click_random_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Opens random click rows.
          param    options: NULL = defaults
          errors   INVALID, NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_clicks_measure': (c_int, (POINTER(trm_click_generator_options), c_int64, POINTER(trm_clicks_bayes), POINTER(trm_error),),
        'options rows out err',
        """Computes the best possible AUC and log loss of generated clicks, in about 8 microseconds and 24
        bytes a row.
          param    rows: first test rows; 0 = all
          errors   INVALID, NOMEM
        """),
    'trm_tokenizer_train': (c_int, (POINTER(c_char_p), c_int32, POINTER(trm_tokenizer_options), POINTER(c_void_p), POINTER(trm_error),),
        'paths count options out err',
        """Learns byte-level BPE from text files, line by line: the same merges in the same order as the
        package's ByteLevelBPETokenizer. At least one line is needed. Memory grows with the distinct
        words of the files.
          param    paths: [count]
          errors   IO, INVALID (a vocabulary below 256 + special_count), CORRUPT (an empty file), NOMEM
          owns     caller: trm_tokenizer_destroy(*out)
          source   Sennrich et al. 2016
        """),
    'trm_tokenizer_open': (c_int, (c_char_p, POINTER(c_void_p), POINTER(trm_error),),
        'path out err',
        """Reads a tokenizer.json, or a folder with tokenizer.json, or else with vocab.json and merges.txt
        (then as GPT-2's: its regular expression, and <|endoftext|> is special if no merge makes it).
          errors   IO, CORRUPT, UNSUPPORTED (naming the part that is not byte-level BPE of GPT-2's, Llama
                   3's or Qwen 2's form), NOMEM
          owns     caller: trm_tokenizer_destroy(*out)
        """),
    'trm_tokenizer_bytes': (c_int, (POINTER(c_void_p), POINTER(trm_error),),
        'out err',
        """Makes a tokenizer of 256 tokens: the id is the byte.
          errors   NOMEM
          owns     caller: trm_tokenizer_destroy(*out)
        """),
    'trm_tokenizer_characters': (c_int, (c_char_p, c_size_t, POINTER(c_void_p), POINTER(trm_error),),
        'text bytes out err',
        """Makes a tokenizer with one token for each character of a text, in the order of code points
        (nanoGPT's character recipe).
          param    text: [bytes]
          errors   INVALID (an empty text), CORRUPT (not UTF-8), NOMEM
          owns     caller: trm_tokenizer_destroy(*out)
        """),
    'trm_tokenizer_save': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'tokenizer folder err',
        """Writes tokenizer.json, which the package and `transformers` load, vocab.json and merges.txt;
        makes the folder.
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_tokenizer_destroy': (None, (c_void_p,),
        'tokenizer',
        """Frees the tokenizer. NULL is accepted."""),
    'trm_tokenizer_vocabulary': (c_int64, (c_void_p,),
        'tokenizer',
        """Returns one more than the largest id."""),
    'trm_tokenizer_find': (c_int32, (c_void_p, c_char_p,),
        'tokenizer token',
        """Returns the id of a token, spelled as in tokenizer.json ("<|endoftext|>"); -1 if there is none."""),
    'trm_tokenizer_begin': (c_int32, (c_void_p,),
        'tokenizer',
        """Returns the id of the token that the post-processor of tokenizer.json puts before a text
        (<|begin_of_text|> of Llama 3); -1 if there is none. Encoding does not add it.
        """),
    'trm_tokenizer_end': (c_int32, (c_void_p,),
        'tokenizer',
        """Returns the id of the token after a document: <|endoftext|>, <|end_of_text|> or </s>; -1 if the
        tokenizer has none of them.
        """),
    'trm_tokens_free': (None, (POINTER(trm_tokens),),
        'tokens',
        """Frees the ids and empties the list."""),
    'trm_tokenizer_encode': (c_int, (c_void_p, c_char_p, c_size_t, POINTER(trm_tokens), POINTER(trm_error),),
        'tokenizer text bytes tokens err',
        """Appends the tokens of a text. Special tokens in the text become their ids.
          param    text: [bytes]
          errors   INVALID (a byte or character without a token, with its offset; `tokens` then has those
                   before it), NOMEM
          owns     caller: trm_tokens_free(tokens)
          threads  one thread at a time per tokenizer (it caches the tokens of words)
        """),
    'trm_tokenizer_decode': (c_int, (c_void_p, POINTER(c_int32), c_int64, POINTER(c_void_p), POINTER(c_size_t), POINTER(trm_error),),
        'tokenizer ids count out bytes err',
        """Gives the text of ids, special ones included: bytes, and a zero byte after them.
          param    ids: [count]
                   bytes: length of the text, written
          errors   INVALID (an id without a token), NOMEM
          owns     caller: trm_free(*out)
        """),
    'trm_tokens_write': (c_int, (POINTER(trm_tokens), c_char_p, POINTER(trm_error),),
        'tokens path err',
        """Writes ids below 65536 as nanoGPT does: uint16, little-endian, no header.
          errors   INVALID (an id that does not fit), IO, NOSPACE
        """),
    'trm_tokens_read': (c_int, (c_char_p, POINTER(trm_tokens), POINTER(trm_error),),
        'path tokens err',
        """Appends the ids of a file of tokens, nanoGPT's or llm.c's. After an error `tokens` is unchanged.
          errors   IO, CORRUPT, UNSUPPORTED (llm.c's form with ids of 32 bits), NOMEM
          owns     caller: trm_tokens_free(tokens)
        """),
    'trm_dataset_tokens': (c_int, (c_char_p, c_int, POINTER(trm_text_options), POINTER(c_void_p), POINTER(trm_error),),
        'path usage options out err',
        """Opens files of ids (.bin), nanoGPT's or llm.c's, which are mapped. Ids beyond the vocabulary are
        an error of the batch that has them.
          errors   IO (no such files), CORRUPT (file, place, found and expected), INVALID (a context that
                   is longer than a part), UNSUPPORTED (as trm_tokens_read), NOMEM
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_text': (c_int, (c_char_p, c_int, POINTER(trm_text_options), POINTER(c_void_p), POINTER(trm_error),),
        'path usage options out err',
        """Opens text files (.txt). Characters and bytes are read from the mapped file; with a tokenizer the
        whole part is encoded here and kept, 2 bytes a token (4 with more than 65536 ids). For longer
        texts, `trireme tokenizer encode` writes files of ids, which are mapped.
          errors   as trm_dataset_tokens
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_json_lines': (c_int, (c_char_p, c_int, POINTER(trm_text_options), POINTER(c_void_p), POINTER(trm_error),),
        'path usage options out err',
        """Opens files with a JSON object on each line (.jsonl), with a document in one of its fields, kept
        as text. Documents are joined, with trm_tokenizer_end after each, or else a line end.
          errors   as trm_dataset_tokens
          owns     caller: trm_dataset_destroy(*out)
        """),
    'trm_dataset_tokenizer': (c_void_p, (c_void_p,),
        'dataset',
        """Returns the tokenizer of a dataset of tokens; NULL for ids without one, and for other data.
          owns     the dataset
        """),
    'trm_role_name': (c_char_p, (c_int,),
        'role',
        """Returns the name of a role: "worker", "chief", "ps", "evaluator", "scheduler".
          owns     static string
          threads  any
        """),
    'trm_cluster_from_env': (c_int, (POINTER(trm_cluster_flags), trm_lookup, c_void_p, POINTER(c_void_p), POINTER(trm_error),),
        'flags lookup context out err',
        """Finds the place of this process from flags and the environment.
          param    flags: options of a command line; NULL = none
                   lookup: called for every variable; NULL = getenv
                   context: for `lookup`
          errors   INVALID (anything wrong in flags, variables or files, with the place), TIMEOUT (a
                   table stayed "initializing"), NOMEM
          owns     caller: trm_cluster_destroy(*out)
          threads  any, while no thread changes the environment
        """),
    'trm_cluster_create': (c_int, (POINTER(trm_cluster_flags), POINTER(c_void_p), POINTER(trm_error),),
        'flags out err',
        """Finds the place of this process from flags alone.
          param    flags: NULL = a single process
          errors   as trm_cluster_from_env
          owns     caller: trm_cluster_destroy(*out)
        """),
    'trm_cluster_destroy': (None, (c_void_p,),
        'cluster',
        """Frees the cluster. NULL is accepted."""),
    'trm_cluster_get': (POINTER(trm_cluster_info), (c_void_p,),
        'cluster',
        """Returns the place of this process.
          owns     the cluster
        """),
    'trm_cluster_task_count': (c_int32, (c_void_p, c_int,),
        'cluster role',
        """Returns the number of tasks of a role."""),
    'trm_cluster_task_address': (c_char_p, (c_void_p, c_int, c_int32,),
        'cluster role index',
        """Returns the "host:port" of a task; NULL if there is no such task, or a sparse map does not say.
          param    index: number within the role, from 0
          owns     the cluster
        """),
    'trm_cluster_beyond_loopback': (c_bool, (c_void_p,),
        'cluster',
        """Returns true if a chief, worker or server listens where other hosts can connect. Such a job needs
        a token.
        """),
    'trm_cluster_text': (c_int, (c_void_p, c_bool, POINTER(c_void_p), POINTER(trm_error),),
        'cluster json out err',
        """Describes the cluster as `trireme cluster show` prints it: lines for people, or one JSON object.
          errors   NOMEM
          owns     caller: trm_free(*out)
        """),
    'trm_cluster_join': (c_int, (c_void_p, POINTER(trm_join_options), POINTER(c_void_p), POINTER(trm_error),),
        'cluster options out err',
        """Meets the other ranks: rank 0 listens at the rendezvous, the others connect, with the token if
        they come from another host. Every 10 s the missing ranks are logged. Afterwards a thread
        exchanges heartbeats; when a rank dies, stops or is cut off, all ranks receive the first cause.
        With size 1 there is no socket and no thread.
          param    cluster: may be destroyed afterwards
                   options: NULL = defaults
          errors   TIMEOUT (naming the missing ranks), INVALID (ranks disagree on size, table or token,
                   two have one rank, or the address cannot be used), PEER (another protocol version),
                   END (in MindSpore's scheduler, TRM_ROLE_SCHEDULER, at the job's end: the program may
                   exit with 0)
          owns     caller: trm_cluster_leave(*out), after destroying its communicators
        """),
    'trm_cluster_leave': (None, (c_void_p,),
        'bootstrap',
        """Leaves the job, so that the other ranks do not count this one as dead, and frees the bootstrap.
        NULL is accepted.
        """),
    'trm_rank_table_read': (c_int, (c_char_p, POINTER(c_void_p), POINTER(trm_error),),
        'path out err',
        """Reads and checks a rank table of any form.
          errors   INVALID (file, field, expected, found, what to do), PENDING (status is
                   "initializing"), NOMEM
          owns     caller: trm_rank_table_destroy(*out)
        """),
    'trm_rank_table_destroy': (None, (c_void_p,),
        'table',
        """Frees the table. NULL is accepted."""),
    'trm_rank_table_size': (c_int32, (c_void_p,),
        'table',
        """Returns the number of ranks."""),
    'trm_rank_table_entry': (trm_rank_entry, (c_void_p, c_int32,),
        'table rank',
        """Returns the entry of a rank.
          param    rank: 0 to size - 1; the entry of another one has rank -1 and empty strings
          owns     strings: the table
        """),
    'trm_rank_table_text': (c_int, (c_void_p, c_bool, POINTER(c_void_p), POINTER(trm_error),),
        'table json out err',
        """Describes the table as `trireme cluster check FILE` prints it: lines for people, or one JSON
        object.
          errors   NOMEM
          owns     caller: trm_free(*out)
        """),
    'trm_rank_table_make': (c_int, (POINTER(trm_rank_table_host), c_int32, c_int, POINTER(c_void_p), POINTER(trm_error),),
        'hosts count form json err',
        """Makes the text of a table: ranks in the order of the hosts, then of the devices.
          param    hosts: [count]
                   form: TRM_RANK_TABLE_V1 or TRM_RANK_TABLE_GROUPS
          errors   INVALID (no hosts, a host twice, 0 or more than 4096 devices, a bad address), NOMEM
          owns     caller: trm_free(*json)
        """),
    'trm_hccn_conf_read': (c_int, (c_char_p, POINTER(POINTER(c_char_p)), POINTER(c_int32), POINTER(trm_error),),
        'path ips count err',
        """Reads the device addresses of an Ascend host ("address_0=192.168.100.101" lines) for
        trm_rank_table_make.
          param    ips: [*count], written
          errors   IO, INVALID (with the line), NOMEM
          owns     caller: trm_free((void *)*ips), one block
        """),
    'trm_rank_table_merge': (c_int, (POINTER(c_char_p), c_int32, POINTER(c_void_p), POINTER(trm_error),),
        'paths count json err',
        """Makes one table from a file of each server: in the order of the files, ranks renumbered from 0.
        All files have the form of the first.
          param    paths: [count]
          errors   INVALID (naming the files), NOMEM
          owns     caller: trm_free(*json)
        """),
    'trm_token_share': (c_int, (c_char_p, c_uint8 * 32, POINTER(trm_error),),
        'path token err',
        """Reads the token at `path`, after creating it, with its folder, if there is none. Processes that
        share a folder get the same token, whichever is first.
          param    token: written
          errors   IO, NOSPACE, those of trm_token_read
        """),
    'trm_token_read': (c_int, (c_char_p, c_uint8 * 32, POINTER(trm_error),),
        'path token err',
        """Reads a token: a regular file of exactly 32 bytes that only its owner can read (or root and a
        group of this process, as a Kubernetes Secret).
          param    token: written
          errors   INVALID (with the chmod that repairs it), IO
        """),
    'trm_launch': (c_int, (POINTER(trm_launch_options), POINTER(trm_launch_result), POINTER(trm_error),),
        'options result err',
        """Runs a job to its end. The last line is "training success", "training failed", or "training
        stopped by signal N" if the launcher was stopped.
          returns  TRM_OK also for a job that failed: see result->exit_code
          errors   INVALID (options, program not found, table of another size), IO, NOMEM: the job did
                   not start, no process is left running
          threads  the main thread, before other threads are started: the call handles SIGINT, SIGTERM,
                   SIGHUP, SIGUSR1 and SIGUSR2 (forwarded; the first two also end the job, the second
                   time at once) and SIGCHLD
        """),
    'trm_reduction_name': (c_char_p, (c_int,),
        'reduce',
        """Returns the name of a reduction ("sum").
          owns     static string
          threads  any
        """),
    'trm_collective_name': (c_char_p, (c_int,),
        'kind',
        """Returns the name of a kind ("all-reduce").
          owns     static string
          threads  any
        """),
    'trm_comm_check': (c_int, (POINTER(trm_comm_options), POINTER(trm_error),),
        'options err',
        """Checks engine and algorithm as far as possible before ranks are started.
          errors   INVALID
        """),
    'trm_comm_create': (c_int, (c_void_p, POINTER(trm_comm_options), POINTER(c_void_p), POINTER(trm_error),),
        'bootstrap options out err',
        """Creates a communicator of the ranks of a bootstrap (trm_cluster_join). Starts no thread until the
        first asynchronous operation. Collective.
          param    options: NULL = defaults
          errors   INVALID (options differ between ranks, unknown engine or algorithm), UNSUPPORTED
                   (plug-in missing), NOMEM, IO, TIMEOUT, PEER
          owns     caller: trm_comm_destroy(*out), before the bootstrap
          threads  any
        """),
    'trm_comm_destroy': (None, (c_void_p,),
        'comm',
        """Waits for this rank's started operations and frees the communicator. NULL is accepted. Not
        collective: a rank that still waits for this one gets TRM_PEER.
        """),
    'trm_comm_rank': (c_int32, (c_void_p,),
        'comm',
        """Returns this process's rank."""),
    'trm_comm_size': (c_int32, (c_void_p,),
        'comm',
        """Returns the number of ranks."""),
    'trm_comm_local_rank': (c_int32, (c_void_p,),
        'comm',
        """Returns this rank's place among the communicator's ranks on this host."""),
    'trm_comm_local_size': (c_int32, (c_void_p,),
        'comm',
        """Returns the number of the communicator's ranks on this host."""),
    'trm_comm_deterministic': (c_int, (c_void_p,),
        'comm',
        """Returns the order of sums with which the communicator was created."""),
    'trm_comm_engine': (c_char_p, (c_void_p,),
        'comm',
        """Returns the engine in use: "shm", "shm+tcp", "tcp", ...
          owns     the communicator
        """),
    'trm_comm_split': (c_int, (c_void_p, c_int32, c_int32, POINTER(c_void_p), POINTER(trm_error),),
        'comm colour key out err',
        """Creates a communicator of the ranks that pass the same colour, ordered by key, then rank. It
        shares registered memory with `comm`. Collective over `comm`.
          param    colour: >= 0; negative: *out is NULL
          errors   as trm_comm_create
          owns     caller: trm_comm_destroy(*out), before `comm`
        """),
    'trm_comm_alloc_shared': (c_void_p, (c_void_p, c_size_t, POINTER(trm_error),),
        'comm bytes err',
        """Allocates memory that all ranks of the host read and write in place: collectives on it need no
        copies. Zeroed, 64-byte aligned, from 2 MB on in huge pages where the kernel has them. The kernel
        frees it when its processes die. Takes up to three system calls. Not collective.
          returns  NULL when memory is out: err says so
          threads  any, also while another thread runs a collective of `comm`
          owns     caller: trm_comm_free_shared, else the last communicator
        """),
    'trm_comm_free_shared': (None, (c_void_p, c_void_p,),
        'comm memory',
        """Frees shared memory. No operation on it may be running on any rank. NULL is accepted."""),
    'trm_comm_keep_shared': (c_size_t, (c_void_p, c_void_p,),
        'comm memory',
        """Takes shared memory from the communicator without freeing it, so that its values can be used
        after the communicator is destroyed. Collectives treat it as ordinary memory from then on. No
        operation on it may be running on any rank.
          returns  its size in bytes, as mapped; 0 if it is not from trm_comm_alloc_shared
          owns     caller: munmap(memory, returned size)
        """),
    'trm_comm_run': (c_int, (c_void_p, POINTER(trm_collective), POINTER(trm_error),),
        'comm op err',
        """Runs one collective and returns when this rank's buffers are free. Algorithms and costs:
        docs/internals/collectives.md.
          errors   INVALID (arguments, or ranks that disagree), PEER, TIMEOUT, NOMEM. Disagreement, PEER
                   and TIMEOUT poison the communicator
        """),
    'trm_comm_start': (c_int, (c_void_p, POINTER(trm_collective), POINTER(c_void_p), POINTER(trm_error),),
        'comm op request err',
        """Starts one collective and returns at once. The caller must not touch its buffers until the
        request is done.
          errors   as trm_comm_run
          owns     caller: trm_request_wait(*request), again after TRM_PENDING
        """),
    'trm_comm_allreduce': (c_int, (c_void_p, c_void_p, c_int64, c_int, c_int, POINTER(trm_error),),
        'comm buffer count dtype reduce err',
        """Combines buffers of all ranks in place and gives every rank the result.
          param    buffer: [count] elements
          errors   as trm_comm_run
        """),
    'trm_comm_broadcast': (c_int, (c_void_p, c_void_p, c_int64, c_int, c_int32, POINTER(trm_error),),
        'comm buffer count dtype root err',
        """Copies rank `root`'s buffer to all ranks.
          param    buffer: [count] elements
          errors   as trm_comm_run
        """),
    'trm_comm_barrier': (c_int, (c_void_p, POINTER(trm_error),),
        'comm err',
        """Waits until all ranks have called it.
          errors   as trm_comm_run
        """),
    'trm_comm_exchange': (c_int, (c_void_p, POINTER(trm_message), c_int32, POINTER(trm_error),),
        'comm messages count err',
        """Sends and receives messages. All progress together, so that any pattern whose sends and receives
        pair up completes. A send may return before it is received.
          param    messages: [count]
          errors   as trm_comm_run
        """),
    'trm_comm_start_exchange': (c_int, (c_void_p, POINTER(trm_message), c_int32, POINTER(c_void_p), POINTER(trm_error),),
        'comm messages count request err',
        """Starts to send and receive messages and returns at once. Consecutive exchanges progress together;
        collectives started after them wait.
          param    messages: [count]
          errors   as trm_comm_run
          owns     caller: trm_request_wait(*request), again after TRM_PENDING
        """),
    'trm_comm_send': (c_int, (c_void_p, c_void_p, c_int64, c_int, c_int32, POINTER(trm_error),),
        'comm buffer count dtype peer err',
        """Sends one message.
          param    buffer: [count] elements
                   peer: the rank that receives
          errors   as trm_comm_run
        """),
    'trm_comm_recv': (c_int, (c_void_p, c_void_p, c_int64, c_int, c_int32, POINTER(trm_error),),
        'comm buffer count dtype peer err',
        """Receives one message.
          param    buffer: [count] elements
                   peer: the rank that sends
          errors   as trm_comm_run
        """),
    'trm_request_wait': (c_int, (c_void_p, c_double, POINTER(trm_error),),
        'request timeout_seconds err',
        """Waits until a request is done, frees it and returns the operation's status.
          param    timeout_seconds: >= 0: the call may return TRM_PENDING after this time, and the
                   request stays the caller's; negative: until the operation's deadline
          errors   PENDING, those of the operation (trm_comm_run)
        """),
    'trm_request_test': (c_bool, (c_void_p,),
        'request',
        """Returns true if the request is done: trm_request_wait then returns at once. Never blocks."""),
    'trm_comm_health': (c_int, (c_void_p, POINTER(trm_error),),
        'comm err',
        """Returns TRM_OK, or the first cause that poisoned the communicator. Never blocks.
          errors   PEER, TIMEOUT, INVALID (ranks that disagreed), or the cause of trm_comm_abort
        """),
    'trm_comm_abort': (None, (c_void_p, POINTER(trm_error),),
        'comm cause',
        """Poisons the communicator on all ranks: their operations fail with `cause`.
          param    cause: NULL = CANCELLED
        """),
    'trm_elastic_create': (c_int, (c_void_p, POINTER(trm_elastic_options), POINTER(c_void_p), POINTER(trm_error),),
        'cluster options out err',
        """Meets the other ranks of an elastic job (trm_cluster_join). Where the job runs already, this
        process comes later: it is alone, with a communicator of its own, until trm_elastic_recover has
        made it a member. It needs what the first ranks had: the rendezvous, and the token if it is on
        another host. Where more than half of the ranks have come to a TCP address or a file, and
        `least`, and no other one for 10 s (a quarter of join.timeout_seconds, if that is less), the job
        begins without the others, which join when they come.
          param    cluster: may be destroyed afterwards
                   options: NULL = defaults
          errors   INVALID (least above most), those of trm_cluster_join and trm_comm_create
          owns     caller: trm_elastic_destroy(*out)
        """),
    'trm_elastic_destroy': (None, (c_void_p,),
        'elastic',
        """Leaves the job in order and frees it. NULL is accepted."""),
    'trm_elastic_comm': (c_void_p, (c_void_p,),
        'elastic',
        """Returns the communicator of the present epoch; NULL while there is none, after a failed recovery.
          owns     the elastic job, until the next trm_elastic_recover
        """),
    'trm_elastic_get_membership': (None, (c_void_p, POINTER(trm_membership),),
        'elastic out',
        """Describes the present epoch."""),
    'trm_elastic_can_recover': (c_bool, (c_int,),
        'status',
        """Returns whether an operation failed for a reason that a new epoch removes: a rank that died or
        does not answer (PEER, TIMEOUT).
        """),
    'trm_elastic_request_leave': (None, (c_void_p,),
        'elastic',
        """Makes this process leave the job with the next trm_elastic_recover, which then returns END. Where
        fewer than `least` ranks would be left, it stays, and its wish is over: trm_membership has
        `stays`, and the program may end the job on all ranks.
          threads  any; may be called from a signal handler
        """),
    'trm_elastic_wants_change': (c_bool, (c_void_p,),
        'elastic',
        """Returns whether a process wants to leave or to join, as far as this rank knows. The ranks agree
        on it between two steps, and all call trm_elastic_recover.
          threads  any
        """),
    'trm_elastic_recover': (c_int, (c_void_p, POINTER(trm_error), POINTER(trm_error),),
        'elastic cause err',
        """Decides with the other survivors on the ranks of the next epoch and makes its communicator. Every
        communicator of the old epoch is gone: those split from it must be destroyed before the call.
          param    cause: error of the operation that failed; NULL = not known, or none failed
          errors   END (this process has left: trm_elastic_request_leave), TIMEOUT (no place became free
                   in join.timeout_seconds), PEER (fewer than `least` ranks; the survivors are no
                   majority and the death of the others is not proven; this rank was given up by the
                   others), INVALID (this process has come with other options of the communicator than
                   the ranks have, which go on without it: it calls trm_elastic_destroy), NOMEM, IO
        """),
    'trm_join': (c_int, (POINTER(trm_error),),
        'err',
        """Joins the ranks that a launcher has started (trireme run, mpirun, srun, torchrun, ...): finds
        this process's rank in the environment and meets the others. Models of this process, and the
        calls below with NULL, then use them. Without a launcher there is one rank. Further calls have no
        effect.
          errors   those of trm_distribute_begin
        """),
    'trm_distribute_begin': (c_int, (POINTER(trm_cluster_flags), POINTER(c_void_p), POINTER(trm_error),),
        'flags out err',
        """Finds this process's rank in the environment (trm_cluster_from_env) and meets the other ranks.
          param    flags: options of a command line; NULL = none
          errors   INVALID (sources that disagree), TIMEOUT and PEER (ranks that do not come), NOMEM
          owns     caller: trm_distribute_end(*out)
        """),
    'trm_distribute_over': (c_int, (c_void_p, POINTER(c_void_p), POINTER(trm_error),),
        'comm out err',
        """Uses an existing communicator, which is borrowed.
          param    comm: NULL = one device
          errors   NOMEM
          owns     caller: trm_distribute_end(*out)
        """),
    'trm_distribute_end': (None, (c_void_p,),
        'ranks',
        """Leaves the job and frees the object. NULL has no effect."""),
    'trm_distribute_rank': (c_int32, (c_void_p,),
        'ranks',
        """Returns this process's rank. With NULL, if joining fails: 0, and the next call that can fail
        returns the error.
        """),
    'trm_distribute_size': (c_int32, (c_void_p,),
        'ranks',
        """Returns the number of ranks. With NULL, if joining fails: 1, as trm_distribute_rank."""),
    'trm_distribute_comm': (c_int, (c_void_p, POINTER(c_void_p), POINTER(trm_error),),
        'ranks out err',
        """Gives the communicator, for trm_exec_options.parallel.comm; NULL on one device.
          errors   those of trm_distribute_begin, with NULL in a first call; INVALID in a forked child
          owns     ranks: valid until trm_distribute_end; with NULL until the process ends
        """),
    'trm_distribute_broadcast': (c_int, (c_void_p, POINTER(trm_tensor), c_int32, c_int32, POINTER(trm_error),),
        'ranks values count root err',
        """Copies the values of rank `root` to every rank.
          param    values: [count], of any type
          errors   INVALID, those of trm_comm_run
        """),
    'trm_distribute_all_reduce': (c_int, (c_void_p, POINTER(trm_tensor), c_int32, c_int, POINTER(trm_error),),
        'ranks values count reduce err',
        """Replaces every value by the sum, mean, product, maximum or minimum over the ranks. Neighbours of
        one type are sent together, up to 4 MB at a time. The mean of integers is rounded towards zero.
          param    values: [count]
          errors   INVALID (no such reduction; lists that differ between ranks), those of trm_comm_run
        """),
    'trm_distribute_shard_and_rebatch': (c_int, (c_void_p, c_void_p, c_int64, POINTER(c_int64), POINTER(trm_error),),
        'ranks dataset global_batch local_batch err',
        """Shards a dataset by rank and sets its batch to global_batch / size. A rank gets every size-th
        element; the first ones come twice where the count is no multiple of size, so that all ranks have
        equally many steps.
          param    dataset: not read yet; NULL = only the local batch size is wanted
                   global_batch: samples of all ranks
                   local_batch: samples of this rank, written
          errors   INVALID (the number of ranks does not divide global_batch)
        """),
    'trm_distribute_shard_arrays': (c_int, (c_void_p, POINTER(trm_tensor), c_int32, POINTER(c_int64), POINTER(c_int64), POINTER(trm_error),),
        'ranks arrays count samples batch err',
        """Shards data in plain arrays: moves this rank's rows (every size-th, wrapped as above) to the
        front of each array, in their order, so that the batches k of all ranks together are batch k of
        one process.
          param    arrays: [count], each of *samples rows of any shape; written
                   samples, batch: of all ranks; replaced by those of this rank
          errors   INVALID (the number of ranks does not divide *batch, or an array is not *samples equal
                   rows)
        """),
    'trm_graph_create': (c_int, (POINTER(trm_graph_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Creates an empty graph.
          param    options: NULL = a graph for evaluation
          errors   NOMEM
          owns     caller: trm_graph_destroy(*out)
        """),
    'trm_graph_destroy': (None, (c_void_p,),
        'graph',
        """Frees the graph with its nodes and names. NULL is accepted."""),
    'trm_graph_check': (c_int, (c_void_p, POINTER(trm_error),),
        'graph err',
        """Returns the first error of all functions that added to the graph; TRM_OK if there was none.
          errors   INVALID (an operator's input, shape, type or name, with the sentence), NOMEM
        """),
    'trm_graph_is_training': (c_bool, (c_void_p,),
        'graph',
        """Returns true if the graph was created for training."""),
    'trm_graph_push_scope': (None, (c_void_p, c_char_p,),
        'graph format ...',
        """Prefixes the names of parameters and operators with "scope." until the matching pop. Scopes nest.
          param    format: as in printf
        """),
    'trm_graph_pop_scope': (None, (c_void_p,),
        'graph',
        """Ends the innermost scope; without one the graph keeps an error."""),
    'trm_graph_mark_segment': (None, (c_void_p,),
        'graph',
        """Marks the open scope as a segment, for instance a block of a network: with
        trm_exec_options.recompute its values are not kept for backward, but computed again there.
        """),
    'trm_node_shape': (trm_shape, (c_void_p, trm_node,),
        'graph node',
        """Returns the shape of a node; an empty one for a broken node."""),
    'trm_node_dtype': (c_int, (c_void_p, trm_node,),
        'graph node',
        """Returns the type of a node; TRM_DTYPE_NONE for a broken node."""),
    'trm_graph_to_string': (c_void_p, (c_void_p,),
        'graph',
        """Returns the graph as text, one operator a line.
          returns  NULL when memory is out
          owns     caller: trm_free
        """),
    'trm_init_normal': (c_int, (c_double,),
        'deviation',
        """Returns the initialiser N(0, deviation^2). The value carries the deviation, in steps of 2^-26.
          param    deviation: 0 <= deviation < 16
          threads  any
        """),
    'trm_input': (trm_node, (c_void_p, c_char_p, c_int, trm_shape,),
        'graph name dtype shape',
        """Adds an input that the program feeds by name before each step. Its shape is that of a whole batch
        and does not change; the name is unique in the graph.
        """),
    'trm_parameter': (trm_node, (c_void_p, c_char_p, trm_shape, c_int,),
        'graph name shape init',
        """Adds a float32 parameter, which training updates. The name is unique in the graph."""),
    'trm_exclude_from_decay': (trm_node, (c_void_p, trm_node,),
        'graph parameter',
        """Excludes a parameter from weight decay (embeddings), as vectors are by default; the option
        decay_all includes it.
          returns  the parameter
        """),
    'trm_freeze': (trm_node, (c_void_p, trm_node,),
        'graph parameter',
        """Freezes a parameter: training reads it and does not change it. It has neither a gradient nor
        optimiser state. Checkpoints contain it.
          returns  the parameter
        """),
    'trm_update_all_rows': (trm_node, (c_void_p, trm_node,),
        'graph parameter',
        """Lets the optimiser update all rows of an embedding table in each step, as PyTorch does. Without
        it only the rows that the batch looks up are updated, and their moments (lazy Adam).
          returns  the parameter
        """),
    'trm_state': (trm_node, (c_void_p, c_char_p, c_int, trm_shape, c_int,),
        'graph name dtype shape init',
        """Adds a state: values that are kept between steps and saved, but not trained (running statistics)."""),
    'trm_constant': (trm_node, (c_void_p, POINTER(trm_tensor),),
        'graph tensor',
        """Adds a constant with a copy of the tensor's elements."""),
    'trm_scalar': (trm_node, (c_void_p, c_double,),
        'graph value',
        """Adds a float32 constant of rank 0."""),
    'trm_conv2d': (trm_node, (c_void_p, trm_node, trm_node, trm_node, POINTER(trm_conv_options),),
        'graph x weight bias options',
        """Adds a convolution: x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O] -> [N, O, H', W'],
        H' = (H + pads - dilation (KH - 1) - 1) / stride + 1, rounded down.
          param    bias: TRM_NO_NODE = none
                   options: NULL = stride 1, no padding
        """),
    'trm_linear': (trm_node, (c_void_p, trm_node, trm_node, trm_node,),
        'graph x weight bias',
        """Adds a linear layer: x [..., I], weight [O, I], bias [O] -> x weight^T + bias [..., O].
          param    bias: TRM_NO_NODE = none
        """),
    'trm_linear_by_inputs': (trm_node, (c_void_p, trm_node, trm_node, trm_node,),
        'graph x weight bias',
        """Adds a linear layer with weights [I, O], the layout of GPT-2's files: x [..., I], bias [O] ->
        [..., O].
          param    bias: TRM_NO_NODE = none
        """),
    'trm_matmul': (trm_node, (c_void_p, trm_node, trm_node, c_bool, c_bool,),
        'graph a b transpose_a transpose_b',
        """Adds a matrix product: [..., M, K] * [..., K, N] -> [..., M, N], after the transposes of the last
        two dimensions. Leading dimensions are equal, or 1 or absent on one side, whose matrices are then
        used for all.
        """),
    'trm_batch_norm': (trm_node, (c_void_p, trm_node, trm_node, trm_node, trm_node, trm_node, POINTER(trm_norm_options),),
        'graph x gamma beta running_mean running_variance options',
        """Adds a batch norm of x [N, C, ...] over all dimensions but the second. Training uses batch
        statistics and updates the running mean and the running unbiased variance; evaluation uses the
        running ones.
          param    gamma, beta: parameters [C]
                   running_mean, running_variance: states [C]
                   options: NULL = defaults
          source   Ioffe and Szegedy 2015
        """),
    'trm_layer_norm': (trm_node, (c_void_p, trm_node, trm_node, trm_node, c_double,),
        'graph x gamma beta epsilon',
        """Adds a layer norm: scales each row of x [..., C] to mean 0 and variance 1, times gamma [C], plus
        beta [C].
          param    epsilon: 0 = 1e-5
          source   Ba et al. 2016
        """),
    'trm_rms_norm': (trm_node, (c_void_p, trm_node, trm_node, c_double,),
        'graph x gamma epsilon',
        """Adds an RMS norm: divides each row of x [..., C] by the root of its mean square + epsilon, times
        gamma [C].
          param    epsilon: 0 = 1e-5
          source   Zhang and Sennrich 2019
        """),
    'trm_attention': (trm_node, (c_void_p, trm_node, trm_node, trm_node, trm_node, POINTER(trm_attention_options),),
        'graph q k v mask options',
        """Adds attention, softmax(scale q k^T) v for each head: q [B, T, H, D], k and v [B, S, G, D] -> [B,
        T, H, D]. Query head h reads key head h / (H / G). Scores exist in tiles only, so memory grows
        with T + S, forward and backward. A query that may read no key gives 0. A causal attention with T
        > S breaks the graph.
          param    mask: int32 [B, S]: keys with 0 are not read; TRM_NO_NODE = all are read
                   options: NULL = defaults
          source   Vaswani et al. 2017; Ainslie et al. 2023 (heads that share keys); Dao et al. 2022, Dao
                   2023 (tiles)
        """),
    'trm_attention_packed': (trm_node, (c_void_p, trm_node, c_int64, c_int64, trm_node, POINTER(trm_attention_options),),
        'graph qkv heads kv_heads mask options',
        """Adds attention whose queries, keys and values lie side by side, as one linear layer makes them:
        qkv [B, T, (heads + 2 kv_heads) D] -> [B, T, heads D].
          param    kv_heads: 0 = heads
                   mask: int32 [B, T], as in trm_attention
        """),
    'trm_rotary': (trm_node, (c_void_p, trm_node, c_double, c_int64,),
        'graph x theta first_position',
        """Adds rotary positions: x [B, T, ..., D], D even. Rotates elements i and i + D/2 of position t by
        the angle t theta^(-2 i / D) (the half-split convention of Llama in Hugging Face's transformers).
          param    theta: 0 = 10000
                   first_position: position of row 0
          source   Su et al. 2021
        """),
    'trm_top_values': (trm_node, (c_void_p, trm_node, c_int64, POINTER(trm_node),),
        'graph x k columns',
        """Adds the k largest numbers of each row, largest first: x [..., C] -> [..., k]. Of equal numbers
        the one with the lower column comes first.
          param    columns: int32 [..., k] columns of these numbers, written
        """),
    'trm_expert_linear': (trm_node, (c_void_p, trm_node, trm_node, trm_node,),
        'graph x weights experts',
        """Adds a linear layer that applies to each row the weights of its expert: x [..., I], weights [E,
        O, I], experts int32 [...] -> [..., O]. An expert outside [0, E) ends the step with TRM_INVALID.
        """),
    'trm_mixture_of_experts': (trm_node, (c_void_p, trm_node, POINTER(trm_experts), POINTER(trm_node),),
        'graph x experts load_balance',
        """Adds a mixture of experts: x [..., C] -> [..., C], the sum of the outputs of each row's top_k
        experts, each times its share (softmax of the router). No row is dropped.
          param    load_balance: E * sum over experts of (share of choices) * (mean probability), to be
                   added to the loss, written; NULL = not wanted
          source   Shazeer et al. 2017; Fedus et al. 2021 (load balance)
        """),
    'trm_max_pool': (trm_node, (c_void_p, trm_node, POINTER(trm_pool_options),),
        'graph x options',
        """Adds a maximum pooling: [N, C, H, W] -> [N, C, H', W'], H' = (H + pads - kernel) / stride + 1,
        rounded down.
          param    options: `kernel` must be given
        """),
    'trm_avg_pool': (trm_node, (c_void_p, trm_node, POINTER(trm_pool_options),),
        'graph x options',
        """Adds an average pooling: [N, C, H, W] -> [N, C, H', W'], as trm_max_pool.
          param    options: `kernel` must be given
        """),
    'trm_global_avg_pool': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds the mean over each channel's image: [N, C, H, W] -> [N, C]."""),
    'trm_embedding': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph table ids',
        """Adds a lookup of rows: table [V, D], ids int32 or int64 of any shape -> [..., D]. An id outside
        [0, V) ends the step with TRM_INVALID. The gradient is sparse: it has only the rows that were
        read.
        """),
    'trm_bag_pool': (trm_node, (c_void_p, trm_node, trm_node, trm_node, c_int,),
        'graph rows offsets weights pooling',
        """Adds a pooling of bags of rows: rows [K, D], offsets int [B + 1] -> [B, D]. Bag b is rows
        [offsets[b], offsets[b + 1]), each times its weight. An empty bag, or one whose weights are 0,
        gives 0.
          param    weights: float32 [K], which get no gradient; TRM_NO_NODE = all 1
        """),
    'trm_pair_dots': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds the inner products of all pairs of rows: x [N, V, W] -> [N, V (V - 1) / 2], in the order (1,
        0), (2, 0), (2, 1), (3, 0) ...
        """),
    'trm_dropout': (trm_node, (c_void_p, trm_node, c_double,),
        'graph x rate',
        """Adds dropout. Training: sets elements to zero with probability `rate` and multiplies the others
        by 1 / (1 - rate); the mask is a function of (seed, step, operator, element). Evaluation:
        identity.
          source   Srivastava et al. 2014
        """),
    'trm_add': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph a b',
        """Adds a + b."""),
    'trm_sub': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph a b',
        """Adds a - b."""),
    'trm_mul': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph a b',
        """Adds a * b."""),
    'trm_div': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph a b',
        """Adds a / b."""),
    'trm_relu': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds max(x, 0)."""),
    'trm_sigmoid': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds 1 / (1 + exp(-x))."""),
    'trm_tanh': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds tanh(x)."""),
    'trm_gelu': (trm_node, (c_void_p, trm_node, c_int,),
        'graph x form',
        """Adds a GELU of x, of either form.
          source   Hendrycks and Gimpel 2016
        """),
    'trm_silu': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds x / (1 + exp(-x))."""),
    'trm_swiglu': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph gate up',
        """Adds silu(gate) * up; both have one shape.
          source   Shazeer 2020
        """),
    'trm_exp': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds exp(x)."""),
    'trm_log': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds the natural logarithm of x."""),
    'trm_sqrt': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds the square root of x."""),
    'trm_power': (trm_node, (c_void_p, trm_node, c_double,),
        'graph x power',
        """Adds x to a constant power. A whole power of at most 64 is made of products, so that negative
        numbers have it, too; 0.5 is the square root; another one is exp(power * log(x)), for positive
        numbers.
        """),
    'trm_neg': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds -x."""),
    'trm_scale': (trm_node, (c_void_p, trm_node, c_double,),
        'graph x factor',
        """Adds factor * x."""),
    'trm_cast': (trm_node, (c_void_p, trm_node, c_int,),
        'graph x dtype',
        """Adds a conversion of x to another type."""),
    'trm_reshape': (trm_node, (c_void_p, trm_node, trm_shape,),
        'graph x shape',
        """Adds a view of x with another shape of the same element count. One dimension may be -1: it is
        computed.
        """),
    'trm_transpose': (trm_node, (c_void_p, trm_node, POINTER(c_int32),),
        'graph x order',
        """Adds a permutation of dimensions: output dimension i is input dimension order[i].
          param    order: [rank of x]
        """),
    'trm_concat': (trm_node, (c_void_p, POINTER(trm_node), c_int32, c_int32,),
        'graph nodes count axis',
        """Adds the concatenation of `count` nodes, whose shapes are equal except along `axis`.
          param    axis: negative: from the end
        """),
    'trm_slice': (trm_node, (c_void_p, trm_node, POINTER(c_int64), POINTER(c_int64),),
        'graph x begin size',
        """Adds elements [begin, begin + size) of each dimension.
          param    begin, size: [rank of x]
        """),
    'trm_pad': (trm_node, (c_void_p, trm_node, POINTER(c_int64), POINTER(c_int64), c_double,),
        'graph x before after value',
        """Adds x with before[i] and after[i] elements of `value` around dimension i.
          param    before, after: [rank of x]
        """),
    'trm_one_hot': (trm_node, (c_void_p, trm_node, c_int64, c_double, c_double,),
        'graph labels classes on off',
        """Adds one-hot rows: int labels [...] -> float32 [..., classes], `on` at the label and `off`
        elsewhere.
        """),
    'trm_reduce_sum': (trm_node, (c_void_p, trm_node, POINTER(c_int32), c_int32, c_bool,),
        'graph x axes count keep_dims',
        """Adds the sum over `count` axes.
          param    axes: negative: from the end; count 0: all axes
                   keep_dims: reduced dimensions stay, with size 1
        """),
    'trm_reduce_mean': (trm_node, (c_void_p, trm_node, POINTER(c_int32), c_int32, c_bool,),
        'graph x axes count keep_dims',
        """Adds the mean over `count` axes; parameters as in trm_reduce_sum."""),
    'trm_reduce_max': (trm_node, (c_void_p, trm_node, POINTER(c_int32), c_int32, c_bool,),
        'graph x axes count keep_dims',
        """Adds the maximum over `count` axes; parameters as in trm_reduce_sum."""),
    'trm_softmax': (trm_node, (c_void_p, trm_node,),
        'graph x',
        """Adds softmax over the last dimension."""),
    'trm_softmax_cross_entropy': (trm_node, (c_void_p, trm_node, trm_node, POINTER(trm_xent_options),),
        'graph logits labels options',
        """Adds the mean over rows of -sum(target * log softmax(logits)): logits [N, K], labels int32 [N] ->
        scalar. A label outside [0, K) that is not ignored ends the step with TRM_INVALID.
          param    options: NULL = no smoothing, every row counts
        """),
    'trm_linear_cross_entropy': (trm_node, (c_void_p, trm_node, trm_node, trm_node, POINTER(trm_xent_options),),
        'graph x weight labels options',
        """Adds the softmax cross-entropy of the logits x weight^T without keeping them: x [..., C], weight
        [V, C], labels int32 [...] -> scalar. Logits and their gradients are computed for some rows at a
        time, so memory does not grow with rows times V. In a graph for evaluation of a trm_model, the
        largest logits give its accuracy. A label outside [0, V) that is not ignored ends
        the step with TRM_INVALID.
          param    options: as in trm_softmax_cross_entropy, without label smoothing
        """),
    'trm_bce_with_logits': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph logits targets',
        """Adds the mean binary cross-entropy of logits z and targets t of equal shapes, max(z, 0) - z t +
        log(1 + exp(-|z|)) -> scalar.
        """),
    'trm_custom': (None, (c_void_p, POINTER(trm_custom_op), POINTER(trm_node), c_int32, POINTER(trm_node),),
        'graph op inputs count outputs',
        """Adds an operator of the program's own.
          param    inputs: [count]
                   outputs: [op->outputs], written
        """),
    'trm_gradients': (None, (c_void_p, trm_node, POINTER(trm_node), c_int32, POINTER(trm_node),),
        'graph loss nodes count grads',
        """Adds the derivatives d(loss)/d(node) of a scalar loss for each of `count` nodes, by reverse-mode
        differentiation.
          param    grads: [count], written; TRM_NO_NODE where the loss does not depend on the node
          source   Griewank and Walther 2008
        """),
    'trm_exec_create': (c_int, (c_void_p, POINTER(trm_exec_options), POINTER(c_void_p), POINTER(trm_error),),
        'graph options out err',
        """Compiles the graph (differentiates, fuses, lays out, places), takes all memory and sets the
        initial values. Takes milliseconds, plus the time for measuring operators that are new on this
        machine. Collective with a communicator.
          errors   INVALID (a broken graph, a loss that is no scalar, options), NOMEM (with the bytes
                   needed and present), IO
          owns     caller: trm_exec_destroy(*out); the graph stays the caller's and may be destroyed
                   afterwards
        """),
    'trm_exec_destroy': (None, (c_void_p,),
        'exec',
        """Frees the exec. NULL is accepted."""),
    'trm_exec_input': (c_int, (c_void_p, c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'exec name out err',
        """Gives the memory of an input, to be written before a step, in plain layout and the graph's type.
        The next batch may be written before trm_exec_update, too, by a caller that calls this after
        trm_exec_forward_backward, or feeds: the update then does not repeat the step to find where a NaN
        comes from. An input keeps its values until new ones are written or fed.
          errors   INVALID (no such input; the sentence lists the names)
          owns     the exec: valid until trm_exec_destroy
        """),
    'trm_exec_feed': (c_int, (c_void_p, c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'exec name tensor err',
        """Copies a tensor into an input; shape and type must match. With trm_exec_options.blocks it orders
        the rows by block; trm_exec_input and trm_exec_output have them in that order, too.
          errors   INVALID (with both shapes or types, or the names of the inputs)
        """),
    'trm_exec_forward': (c_int, (c_void_p, POINTER(trm_error),),
        'exec err',
        """Runs the forward steps only. For evaluation graphs. With a training graph the gradients of the
        last trm_exec_forward_backward may be lost, because activations take their memory:
        trm_exec_update and trm_exec_gradient are then refused until its next call. Dense gradients stay
        with trm_exec_options.whole_gradients, and accumulated ones.
          errors   INVALID (an input that never got values, an id outside of a table), the error of an
                   operator of the program's own, with many ranks those of trm_comm_run
        """),
    'trm_exec_forward_backward': (c_int, (c_void_p, POINTER(trm_error),),
        'exec err',
        """Runs forward and backward, and adds 1 / accumulate of the gradients to the gradient range. With a
        communicator, the last call before an update is collective: it returns with the gradients reduced
        over all ranks (shard_optimizer: this rank's slices of them), and trm_exec_loss is the mean over
        the ranks.
          errors   INVALID (a graph without a loss), those of trm_exec_forward
        """),
    'trm_exec_update': (c_int, (c_void_p, c_double, POINTER(trm_error),),
        'exec learning_rate err',
        """Applies the optimiser to all parameters and readies the gradient range for the next step. It uses
        the gradients of the last trm_exec_forward_backward, again if it is called twice; before the
        first one they are 0.
          param    learning_rate: of this update
          errors   INVALID (a graph without a loss, updated_elsewhere, too few accumulated calls,
                   gradients that trm_exec_forward has overwritten),
                   DIVERGED (a gradient is NaN or infinite, with a loss scale: at scale 1; the sentence
                   names the first operator, for which all ranks repeat the step; in a pipeline, and
                   where the next batch was fed on any rank, the first parameter), with many ranks those
                   of trm_comm_run
        """),
    'trm_exec_get_loss_scale': (c_bool, (c_void_p, POINTER(trm_loss_scale_state),),
        'exec out',
        """Gives the state of loss scaling.
          returns  false if no loss is scaled
        """),
    'trm_exec_set_loss_scale': (c_int, (c_void_p, POINTER(trm_loss_scale_state), POINTER(trm_error),),
        'exec state err',
        """Continues loss scaling from the state of a checkpoint.
          errors   INVALID (no loss is scaled, or a scale that is no positive number)
        """),
    'trm_exec_loss': (c_float, (c_void_p,),
        'exec',
        """Returns the loss of the last forward pass; once gradients are reduced, the mean of all ranks."""),
    'trm_exec_output': (c_int, (c_void_p, c_int32, POINTER(trm_tensor), POINTER(trm_error),),
        'exec index out err',
        """Gives output `index` of trm_exec_options.outputs, in plain layout, float32 or integer.
          errors   INVALID (no such output)
          owns     *out points into the exec: valid until the next step
        """),
    'trm_exec_variable_count': (c_int32, (c_void_p,),
        'exec',
        """Returns the number of parameters, states and slots."""),
    'trm_exec_variable': (trm_variable, (c_void_p, c_int32,),
        'exec index',
        """Describes variable `index`; all zero if there is none.
          owns     name: the exec
        """),
    'trm_exec_find': (c_int32, (c_void_p, c_char_p,),
        'exec name',
        """Returns the index of a variable; -1 if there is none of this name."""),
    'trm_exec_read': (None, (c_void_p, c_int32, c_void_p,),
        'exec index data',
        """Copies a variable out in plain layout. Of a cut variable, a rank has its own part and zeros until
        trm_exec_gather.
          param    index: 0 to trm_exec_variable_count - 1; another one copies nothing
                   data: room for the whole variable
        """),
    'trm_exec_write': (None, (c_void_p, c_int32, c_void_p,),
        'exec index data',
        """Sets a variable from plain layout. Of a cut variable, a rank takes its own part; one that another
        stage of a pipeline has is left out. If there is no memory for that part, the steps that follow
        return NOMEM.
          param    index: 0 to trm_exec_variable_count - 1; another one sets nothing
                   data: the whole variable
        """),
    'trm_exec_gradient': (c_int, (c_void_p, c_int32, POINTER(c_float), POINTER(trm_error),),
        'exec index data err',
        """Copies the gradient of a parameter out after forward_backward, in plain float32. Collective for a
        parameter that a plan cuts.
          param    index: 0 to trm_exec_variable_count - 1, of a parameter
                   data: room for the parameter's elements; a frozen one has zeros
          errors   INVALID (not a parameter, gradients that trm_exec_forward has overwritten); of a cut
                   parameter NOMEM, also of another rank, and those of trm_comm_run
        """),
    'trm_exec_ranges': (None, (c_void_p, POINTER(POINTER(c_float)), POINTER(POINTER(c_float)), POINTER(c_int64),),
        'exec parameters gradients count',
        """Gives all parameters that are not frozen, and their gradients, as one range each, in the order in
        which backward finishes the gradients: the operands of collectives and of the three calls of
        trireme/dist.h. Elements have the program's own layouts; trm_exec_read and trm_exec_gradient give
        plain ones. The gradient of an embedding table, of which only rows are updated, is in the range
        with whole_gradients, else it is 0 there.
          param    count: elements of a range: parameters begin at aligned offsets, with unused elements
                   between them, which are 0 in gradients
          owns     the exec: valid until trm_exec_destroy
        """),
    'trm_exec_broadcast': (c_int, (c_void_p, POINTER(trm_error),),
        'exec err',
        """Copies rank 0's parameters, states, slots and step to all ranks, except layerwise parameters.
          errors   those of trm_comm_run
        """),
    'trm_exec_gather': (c_int, (c_void_p, POINTER(trm_error),),
        'exec err',
        """Completes on every rank the variables of which a rank holds a part, so that trm_exec_read returns
        them whole: slots with shard_optimizer, all variables of a split graph.
          errors   NOMEM (also of another rank), those of trm_comm_run
        """),
    'trm_exec_get_parallel_info': (None, (c_void_p, POINTER(trm_parallel_info),),
        'exec out',
        """Describes how gradients are reduced.
          level    expert
        """),
    'trm_exec_get_searched_plan': (None, (c_void_p, POINTER(trm_searched_plan),),
        'exec out',
        """Describes the plan that a search has chosen.
          level    expert
        """),
    'trm_exec_waiting_seconds': (c_double, (c_void_p,),
        'exec',
        """Returns the seconds that this rank alone has waited for other ranks after backward, since the
        executor was created; 0 with one rank. Nothing is sent.
          level    expert
        """),
    'trm_exec_begin_waiting': (None, (c_void_p,),
        'exec',
        """Starts the measurement of trm_exec_get_waiting anew. All ranks call it, between the same steps.
          level    expert
        """),
    'trm_exec_get_waiting': (c_int, (c_void_p, POINTER(trm_waiting), POINTER(trm_error),),
        'exec out err',
        """Gives the time spent waiting since trm_exec_begin_waiting; all zero with one rank. Collective.
          errors   those of trm_comm_run
          level    expert
        """),
    'trm_exec_step': (c_uint64, (c_void_p,),
        'exec',
        """Returns the global step: the number of updates. Dropout depends on it."""),
    'trm_exec_set_step': (None, (c_void_p, c_uint64,),
        'exec step',
        """Sets the global step, for a resume."""),
    'trm_exec_get_info': (None, (c_void_p, POINTER(trm_exec_info),),
        'exec out',
        """Describes memory, work and threads of the program."""),
    'trm_exec_explain': (c_void_p, (c_void_p, c_bool,),
        'exec json',
        """Returns the program as text, or as one JSON object: operators, layouts, fusions, memory by
        category, FLOPs, predicted time.
          returns  NULL when memory is out
          owns     caller: trm_free
          level    unstable
        """),
    'trm_meter_create': (c_int, (c_int, POINTER(c_void_p), POINTER(trm_error),),
        'threads out err',
        """Creates a meter. It holds at most 400 MB until it is destroyed.
          param    threads: 0 = the CPUs that this process may use
          errors   NOMEM
          owns     caller: trm_meter_destroy(*out)
          level    unstable
        """),
    'trm_meter_destroy': (None, (c_void_p,),
        'meter',
        """Frees the meter. NULL is accepted."""),
    'trm_meter_sample': (None, (c_void_p,),
        'meter',
        """Runs each loop once, a quarter of a second in all.
          level    unstable
        """),
    'trm_meter_get_peaks': (None, (c_void_p, POINTER(trm_machine_peak), POINTER(trm_machine_peak),),
        'meter median best',
        """Gives, of all samples so far, the median and the highest rate of each loop.
          param    median, best: NULL = not wanted
          level    unstable
        """),
    'trm_machine_memory_seconds': (c_double, (POINTER(trm_machine_peak), c_double, c_double, c_double,),
        'peak bytes written held',
        """Returns the seconds that moving `bytes`, of which `written` are written, takes at the rates of
        that mix, in the largest working set of at most `held` bytes.
          threads  any
          level    unstable
        """),
    'trm_exec_profile': (c_int, (c_void_p, POINTER(trm_profile_options), POINTER(trm_program_profile), POINTER(trm_error),),
        'exec options out err',
        """Runs the program some times and gives the median time of each program step.
          param    options: NULL = defaults
          errors   CANCELLED (`stop`), those of trm_exec_forward_backward and trm_exec_update
          level    unstable
        """),
    'trm_context_create': (c_int, (POINTER(c_void_p), POINTER(trm_error),),
        'out err',
        """Creates a context with all options at their defaults.
          errors   NOMEM
          owns     caller: trm_context_destroy(*out)
        """),
    'trm_context_destroy': (None, (c_void_p,),
        'context',
        """Frees the context. NULL is accepted."""),
    'trm_context_set': (c_int, (c_void_p, c_char_p, c_char_p, POINTER(trm_error),),
        'context name value err',
        """Sets one option; strings are copied. Words and truth values may be in upper or lower case.
          errors   INVALID (no such option, with the nearest name; a value outside of its range),
                   UNSUPPORTED (another value of an option that can only have one, with the reason)
        """),
    'trm_context_get': (c_char_p, (c_void_p, c_char_p,),
        'context name',
        """Returns the value of an option: the one that was set, else the default. device_num and
        global_rank are those of the communicator once a model has been made.
          returns  NULL: no such option
          owns     the context: valid until the next call with it
        """),
    'trm_context_is_set': (c_bool, (c_void_p, c_char_p,),
        'context name',
        """Returns true if the option was set since the last reset; false if there is no such option."""),
    'trm_context_reset': (None, (c_void_p,),
        'context',
        """Sets every option to its default."""),
    'trm_context_own_samples': (c_bool, (c_void_p, c_int32,),
        'context ranks',
        """Returns true if the context, in a split mode, makes each of `ranks` ranks read its own samples:
        full_batch false, dataset_strategy data_parallel, or tuples that cut each input by samples into
        `ranks` parts.
          level    expert
        """),
    'trm_context_check': (c_int, (c_void_p, POINTER(trm_error),),
        'context err',
        """Checks the options against each other: the errors of trm_context_resolve that hold for any ranks.
          errors   INVALID, UNSUPPORTED: as trm_context_resolve
        """),
    'trm_context_resolve': (c_int, (c_void_p, c_void_p, POINTER(trm_parallel_options), POINTER(c_int32), POINTER(trm_error),),
        'context comm parallel accumulate err',
        """Checks the options against each other and against the ranks, and translates them to
        trm_parallel_options. trm_model_create does this for a model.
          param    comm: NULL = one rank
                   parallel: written; lists in it belong to the context, until it is set, reset or
                   destroyed; in mode stand_alone comm is NULL
                   accumulate: grad_accumulation_step, written
          errors   INVALID (options that exclude each other, device_num different from the number of
                   ranks, an option of another parallel_mode), UNSUPPORTED (a value that the mode does
                   not carry out)
          level    expert
        """),
    'trm_context_option_at': (c_bool, (c_int32, POINTER(trm_context_option),),
        'index out',
        """Gives option `index` of the table.
          returns  false after the last one
          owns     static strings
          threads  any
        """),
    'trm_resnet': (trm_node, (c_void_p, trm_node, POINTER(trm_resnet_options),),
        'graph image options',
        """Adds a ResNet in the "v1.5" form (stride on the 3x3 of a bottleneck), as torchvision's: image [N,
        3, H, W] -> logits [N, classes].
          source   He et al. 2015
        """),
    'trm_mlp': (trm_node, (c_void_p, trm_node, POINTER(c_int64), c_int32, c_int64,),
        'graph x hidden count classes',
        """Adds linear layers with ReLU of the widths hidden[count], then one of `classes` outputs: x [N,
        ...], flattened -> logits [N, classes]. Names: "fc0.weight", "fc0.bias", ...
        """),
    'trm_lenet': (trm_node, (c_void_p, trm_node, c_int64,),
        'graph image classes',
        """Adds LeNet in its usual modern form, conv 5x5 (6), pool, conv 5x5 (16), pool, 120, 84: image [N,
        C, H, W], H and W at least 12 -> logits [N, classes].
          source   LeCun et al. 1998
        """),
    'trm_vit_size': (c_int, (c_char_p, POINTER(trm_vit_options), POINTER(trm_error),),
        'size options err',
        """Sets the options of a published size.
          param    size: tiny, small, base or large
          errors   INVALID (another name, with the names there are)
        """),
    'trm_vit_complete': (None, (POINTER(trm_vit_options),),
        'options',
        """Replaces the zeros of *options by the defaults."""),
    'trm_vit': (trm_node, (c_void_p, trm_node, c_int64, POINTER(trm_vit_options),),
        'graph image classes options',
        """Adds a vision transformer: image [N, C, H, W] -> logits [N, classes]. Names, shapes and initial
        values of the parameters are those of transformers' ViTForImageClassification,
        "vit.embeddings.cls_token", "vit.encoder.layer.0.attention.attention.query.weight" ...
          source   Dosovitskiy et al. 2020
        """),
    'trm_language_size': (c_int, (c_char_p, c_char_p, POINTER(trm_language_options), POINTER(trm_error),),
        'model size options err',
        """Sets the options of a published size.
          param    model: name of the model
                   size: gpt2: small (also gpt2), medium, large, xl, tiny (4 layers of width 128); llama:
                   llama15m, llama110m, 1b, 8b; moe: those of gpt2; bert: base, large, medium, small,
                   mini, tiny
          errors   INVALID (another name, with the names there are)
        """),
    'trm_language_is_masked': (c_bool, (c_char_p,),
        'model',
        """Returns whether the model predicts masked tokens (bert) instead of the next ones: its targets are
        the tokens at masked positions (trm_text_options.masking), and it generates no text. False for a
        name that is no language model.
          threads  any
        """),
    'trm_language_complete': (c_int, (c_char_p, POINTER(trm_language_options), POINTER(trm_error),),
        'model options err',
        """Replaces the zeros of *options by the model's defaults.
          errors   INVALID (no such model)
        """),
    'trm_language_build': (trm_node, (c_void_p, c_char_p, trm_node, POINTER(trm_language_options),),
        'graph model ids options',
        """Adds the language model of this name: token ids int32 or int64 [B, T], T at most the context ->
        logits [B, T, vocabulary]. Names, shapes and initial values of the parameters are those of
        transformers: gpt2 "wte.weight", "wpe.weight", "h.0.attn.c_attn.weight" [width, 3 width] ...,
        llama "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight" ... moe is gpt2 with
        experts in place of the layers after attention (trm_mixture_of_experts),
        "h.0.mlp.router.weight", "h.0.mlp.experts.up", "h.0.mlp.experts.down". The output layer uses the
        token embedding unless the options say otherwise. For another name the graph keeps an error that
        lists the names.
          source   Radford et al. 2019 (gpt2); Touvron et al. 2023 (llama); Fedus et al. 2021 (moe);
                   Devlin et al. 2018 (bert)
        """),
    'trm_language_loss': (trm_node, (c_void_p, c_char_p, trm_node, trm_node, POINTER(trm_language_options),),
        'graph model ids targets options',
        """Adds the language model with its mean cross-entropy, without keeping the logits
        (trm_linear_cross_entropy): ids as in trm_language_build -> scalar. In a graph for training, moe
        adds its load balance.
          param    targets: int32 [B, T]: the ids of the next positions, of bert those of masked ones;
                   -100 does not count
        """),
    'trm_widedeep': (trm_node, (c_void_p, POINTER(trm_click_inputs), POINTER(trm_recommender_options),),
        'graph inputs options',
        """Adds Wide&Deep: a linear part on keys and dense inputs plus a deep network on the embeddings ->
        logits [N]. Default of hidden: 256, 128.
          source   Cheng et al. 2016
        """),
    'trm_deepfm': (trm_node, (c_void_p, POINTER(trm_click_inputs), POINTER(trm_recommender_options),),
        'graph inputs options',
        """Adds DeepFM: a linear part, a factorisation machine and a deep network that share the embeddings
        -> logits [N]. Default of hidden: 400, 400, 400.
          source   Guo et al. 2017
        """),
    'trm_dcnv2': (trm_node, (c_void_p, POINTER(trm_click_inputs), POINTER(trm_recommender_options),),
        'graph inputs options',
        """Adds DCN-v2: cross layers x(l+1) = x0 * (W x(l) + b) + x(l) on embeddings and dense inputs, and a
        deep network beside or after them -> logits [N]. Default of hidden: 400, 400, 400.
          source   Wang et al. 2021
        """),
    'trm_dlrm': (trm_node, (c_void_p, POINTER(trm_click_inputs), POINTER(trm_recommender_options),),
        'graph inputs options',
        """Adds DLRM: bottom layers turn the dense inputs into a row of `width`; the inner products of all
        pairs of rows go through the top layers -> logits [N]. Defaults: bottom 512, 256, 64; hidden
        (top) 512, 256.
          source   Naumov et al. 2019
        """),
    'trm_recommender_build': (trm_node, (c_void_p, c_char_p, POINTER(trm_click_inputs), POINTER(trm_recommender_options),),
        'graph name inputs options',
        """Adds the recommender of this name: widedeep, deepfm, dcnv2 or dlrm. For another name the graph
        keeps an error that lists the names.
        """),
    'trm_network_build': (trm_node, (c_void_p, c_char_p, trm_node, POINTER(trm_network_options),),
        'graph name image options',
        """Adds the network of this name, as the command line has it: resnet18, resnet34, resnet50,
        resnet101, resnet152, mlp (hidden 512, 256), lenet or vit. For another name the graph keeps an
        error that lists the names.
          param    image: [N, C, H, W]
        """),
    'trm_generator_create': (c_int, (c_void_p, POINTER(trm_generator_options), POINTER(c_void_p), POINTER(trm_error),),
        'model options out err',
        """Creates a generator that uses the parameters of `model` where they are. It computes in the
        model's precision; the weights of bfloat16 products are converted once.
          param    model: made of the language model's graph; must outlive the generator
          errors   INVALID (no such language model, one of masked tokens, options of another network),
                   NOMEM, those of trm_exec_create
          owns     caller: trm_generator_destroy(*out)
        """),
    'trm_generator_destroy': (None, (c_void_p,),
        'generator',
        """Frees the generator. NULL is accepted."""),
    'trm_generator_reset': (None, (c_void_p,),
        'generator',
        """Forgets all tokens, and reads the parameters again, which training may have changed."""),
    'trm_generator_read': (c_int, (c_void_p, POINTER(c_int32), c_int64, POINTER(trm_error),),
        'generator ids count err',
        """Reads tokens after those that were read before. When there are as many as the model has
        positions, the generator forgets all but the last half of them, which it reads again.
          param    ids: [count]
          errors   INVALID (an id outside of the vocabulary; the generator is then reset)
        """),
    'trm_generator_logits': (POINTER(c_float), (c_void_p,),
        'generator',
        """Returns the logits [vocabulary] of the token after those that were read; NULL before the first.
          owns     the generator: valid until its next call
        """),
    'trm_generator_weight_bytes': (c_int64, (c_void_p,),
        'generator',
        """Returns the bytes of weights that the computation of one token reads: the weights of all
        products, in the types in which they are kept.
        """),
    'trm_generator_choose': (c_int32, (c_void_p, POINTER(trm_sampling),),
        'generator sampling',
        """Chooses the token after those that were read: a function of their logits, the options and the
        number of tokens that were read.
          param    sampling: NULL = all zeros
          returns  the id; -1 before the first token
        """),
    'trm_safetensors_write': (c_int, (c_char_p, POINTER(trm_named_tensor), c_int64, POINTER(trm_text_pair), c_int64, POINTER(trm_error),),
        'path tensors count metadata metadata_count err',
        """Writes a file that every safetensors reader takes: tensors ordered by the width of their type
        (widest first), then by name; data begin at a multiple of 8. Takes one pass over the data and no
        copy.
          param    tensors: [count]
                   metadata: [metadata_count]
          errors   INVALID (a name that is not UTF-8 or not unique, a bad shape), IO, NOSPACE
          source   https://huggingface.co/docs/safetensors
        """),
    'trm_safetensors_open': (c_int, (c_char_p, POINTER(c_void_p), POINTER(trm_error),),
        'path out err',
        """Maps a file and checks its header: every byte must belong to exactly one tensor.
          errors   CORRUPT (with the byte offset of the first fault), IO, NOMEM
          owns     caller: trm_safetensors_close(*out)
        """),
    'trm_safetensors_close': (None, (c_void_p,),
        'file',
        """Closes the file. NULL is accepted."""),
    'trm_safetensors_count': (c_int64, (c_void_p,),
        'file',
        """Returns the number of tensors."""),
    'trm_safetensors_at': (POINTER(trm_safetensors_entry), (c_void_p, c_int64,),
        'file index',
        """Returns entry `index` in the order of the data; NULL after the last.
          owns     the file
        """),
    'trm_safetensors_find': (POINTER(trm_safetensors_entry), (c_void_p, c_char_p,),
        'file name',
        """Returns the entry of this name, in O(log n); NULL if there is none.
          owns     the file
        """),
    'trm_safetensors_metadata_count': (c_int64, (c_void_p,),
        'file',
        """Returns the number of pairs of the file's `__metadata__`."""),
    'trm_safetensors_metadata_at': (trm_text_pair, (c_void_p, c_int64,),
        'file index',
        """Returns pair `index` of the file's `__metadata__`; both texts are NULL after the last.
          owns     the file
        """),
    'trm_safetensors_metadata': (c_char_p, (c_void_p, c_char_p,),
        'file key',
        """Returns the value of a key of the file's `__metadata__`; NULL if there is none.
          owns     the file
        """),
    'trm_safetensors_read': (c_int, (c_void_p, c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'file name into err',
        """Copies a tensor out. Floating types are converted to each other (to nearest even); other types
        must be equal.
          param    into: data, dtype and shape are set by the caller; the shape must be the file's
          errors   INVALID (with both shapes or types, or no tensor of this name)
        """),
    'trm_checkpoint_writer_open': (c_int, (c_char_p, POINTER(trm_checkpoint_options), POINTER(c_void_p), POINTER(trm_error),),
        'folder options out err',
        """Makes the folder, takes its lock and removes what an interrupted writer left. The lock of a
        dead process is taken over; on another host, after 60 s without a sign of life.
          param    options: NULL = defaults
          errors   INVALID (another process writes there, with its host, pid and start), IO, NOSPACE,
                   NOMEM
          owns     caller: trm_checkpoint_writer_close(*out)
        """),
    'trm_checkpoint_save': (c_int, (c_void_p, POINTER(trm_checkpoint_info), POINTER(trm_checkpoint_part), c_int64, POINTER(trm_error),),
        'writer info parts part_count err',
        """Saves <folder>/ckpt-<global_step>, replacing one of this step. When it returns TRM_OK (with
        `background`: when trm_checkpoint_wait does), the checkpoint is complete on the disk. If anything
        fails, or the process is killed at any point, earlier checkpoints still load. Then
        <folder>/checkpoint names the newest, and all but the newest `keep` are removed: never one in
        use, and never before two of those kept (one if keep is 1) have been read back and verified.
          param    parts: [part_count]
          errors   NOSPACE (before anything is written, unless 1.2 times the size is free), IO, INVALID.
                   With `background`: this save has started, and the error may be that of the one before,
                   which its sentence says
        """),
    'trm_checkpoint_wait': (c_int, (c_void_p, POINTER(trm_error),),
        'writer err',
        """Waits for the save in the background.
          errors   those of that save, unless they have been returned already
        """),
    'trm_checkpoint_writer_close': (c_int, (c_void_p, POINTER(trm_error),),
        'writer err',
        """Waits for the save in the background, releases the lock and frees the writer, also after an
        error. If saving failed, removes a folder that open made and that is empty. NULL is accepted.
          errors   those of trm_checkpoint_wait
        """),
    'trm_checkpoint_open': (c_int, (c_char_p, POINTER(trm_checkpoint_open_options), POINTER(c_void_p), POINTER(trm_error),),
        'path options out err',
        """Opens one checkpoint, or the newest sound one of an output folder. Each file is read and
        compared with its checksums first. Damaged checkpoints are named in the log (WARN) and skipped.
          param    options: NULL = defaults
          errors   END (no checkpoint or no folder there: start afresh), CORRUPT (only damaged ones:
                   file, block and offset of the newest), INVALID (no checkpoint of this name, or not a
                   folder), UNSUPPORTED (a checkpoint of another version), IO, NOMEM
          owns     caller: trm_checkpoint_close(*out)
        """),
    'trm_checkpoint_close': (None, (c_void_p,),
        'checkpoint',
        """Closes the checkpoint. NULL is accepted."""),
    'trm_checkpoint_get_info': (POINTER(trm_checkpoint_info), (c_void_p,),
        'checkpoint',
        """Returns the checkpoint's step, position and settings.
          owns     the checkpoint
        """),
    'trm_checkpoint_part_of': (c_void_p, (c_void_p, c_char_p,),
        'checkpoint name',
        """Returns the part of this name ("model"); NULL if there is none.
          owns     the checkpoint
        """),
    'trm_checkpoint_latest': (c_int, (c_char_p, POINTER(c_int64), POINTER(trm_error),),
        'folder global_step err',
        """Gives the global step of the newest complete checkpoint in `folder`, by its manifest alone. For
        evaluators that poll.
          errors   END (there is none), IO
        """),
    'trm_events_open': (c_int, (c_char_p, POINTER(trm_events_options), POINTER(c_void_p), POINTER(trm_error),),
        'folder options out err',
        """Makes a new file <folder>/events.out.tfevents.<time>.<host>.<pid>.<n>, and the folder if it is
        missing. TensorBoard shows the folder's name as the run's.
          param    options: NULL = a new run
          errors   IO, NOSPACE, NOMEM
          owns     caller: trm_events_close(*out)
        """),
    'trm_events_path': (c_char_p, (c_void_p,),
        'events',
        """Returns the path of the file.
          owns     events
        """),
    'trm_events_scalars': (c_int, (c_void_p, c_int64, POINTER(trm_named_scalar), c_int64, POINTER(trm_error),),
        'events step scalars count err',
        """Writes one point of each curve. After an error the file is as before.
          param    scalars: [count]
                   step: global step, the horizontal axis
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_events_histogram': (c_int, (c_void_p, c_int64, c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'events step tag values err',
        """Writes the distribution of a tensor's values, of any type, over TensorFlow's buckets, which grow
        by 10 %. Infinite values and NaN are left out. Takes one pass, about 10 ns an element. After an
        error the file is as before.
          param    step: global step
                   tag: name of the histogram
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_events_graph': (c_int, (c_void_p, POINTER(trm_graph_event_node), c_int64, POINTER(trm_error),),
        'events nodes count err',
        """Writes a graph. After an error the file is as before.
          param    nodes: [count]
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_events_flush': (c_int, (c_void_p, POINTER(trm_error),),
        'events err',
        """Flushes to the disk (fsync). Readers see records without it.
          errors   IO, NOSPACE
        """),
    'trm_events_close': (c_int, (c_void_p, POINTER(trm_error),),
        'events err',
        """Flushes to the disk and frees the object, also after an error. NULL is accepted.
          errors   IO, NOSPACE
        """),
    'trm_metrics_open': (c_int, (c_char_p, POINTER(trm_metrics_options), POINTER(c_void_p), POINTER(trm_error),),
        'path options out err',
        """Opens a file of metrics. The form follows its ending:

          .csv     global_step,event,<columns>; values that a line lacks stay empty
          .jsonl   {"time":..., "event":"step", "global_step":7, "loss":2.5}; NaN and infinities: null

        Half a line at the end of an existing file (from a crash) is cut off.
          param    options: NULL = defaults, for .jsonl
          errors   INVALID (another ending, a CSV file with other columns), IO, NOMEM
          owns     caller: trm_metrics_close(*out)
        """),
    'trm_metrics_write': (c_int, (c_void_p, c_char_p, c_int64, POINTER(trm_named_scalar), c_int64, POINTER(trm_error),),
        'metrics event global_step scalars count err',
        """Writes one line. A value that is a float is written with 9 digits: equal bits give equal text.
          param    event: "step" (also NULL), "epoch", "eval"
                   scalars: [count]
          errors   INVALID (a name without a column), IO, NOSPACE
        """),
    'trm_metrics_close': (c_int, (c_void_p, POINTER(trm_error),),
        'metrics err',
        """Flushes to the disk and frees the object, also after an error. NULL is accepted.
          errors   IO, NOSPACE
        """),
    'trm_record_open': (c_int, (c_char_p, c_char_p, c_int32, POINTER(c_void_p), POINTER(trm_error),),
        'folder role number out err',
        """Opens or creates the record of a process in a folder, with the folder. Half a line at its end
        (from a crash) gets a line end.
          param    role: the process is task `number` of it; the record is
                   DIRECTORY/run-ROLE-NUMBER.jsonl. NULL, or "rank" with 0: DIRECTORY/run.jsonl
          errors   IO, NOMEM
          owns     caller: trm_record_close(*out)
        """),
    'trm_record_line': (c_int, (c_void_p, c_char_p, c_size_t, POINTER(trm_error),),
        'record json bytes err',
        """Appends a JSON object by one call of write(2), with the time in front: {"time":...,"event":...}.
          param    json: [bytes]: an object with members, without a line end
          errors   INVALID (no such object), IO, NOSPACE, NOMEM
          threads  any
        """),
    'trm_record_close': (None, (c_void_p,),
        'record',
        """Closes the record. NULL is accepted."""),
    'trm_npy_write': (c_int, (c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'path array err',
        """Writes one array, for numpy.load. bfloat16, which NumPy lacks, is widened to float32.
          errors   IO, NOSPACE
          source   NumPy Enhancement Proposal 1
        """),
    'trm_npz_write': (c_int, (c_char_p, POINTER(trm_named_tensor), c_int64, POINTER(trm_error),),
        'path arrays count err',
        """Writes an uncompressed archive of arrays, as numpy.savez; members are aligned, so that they can
        be mapped. bfloat16 is widened to float32.
          param    arrays: [count]
          errors   INVALID (names that are empty or not unique), IO, NOSPACE
        """),
    'trm_npz_open': (c_int, (c_char_p, POINTER(c_void_p), POINTER(trm_error),),
        'path out err',
        """Opens an archive, or a single .npy, recognised by content, and verifies the checksums of all
        members.
          errors   CORRUPT (with member and offset), UNSUPPORTED (compressed archives, big-endian and
                   object arrays; the sentence says how to save instead), IO, NOMEM
          owns     caller: trm_npz_close(*out)
        """),
    'trm_npz_close': (None, (c_void_p,),
        'file',
        """Closes the file. NULL is accepted."""),
    'trm_npz_count': (c_int64, (c_void_p,),
        'file',
        """Returns the number of arrays."""),
    'trm_npz_at': (POINTER(trm_npz_entry), (c_void_p, c_int64,),
        'file index',
        """Returns array `index`; NULL after the last.
          owns     the file
        """),
    'trm_npz_find': (POINTER(trm_npz_entry), (c_void_p, c_char_p,),
        'file name',
        """Returns the array of this name; NULL if there is none.
          owns     the file
        """),
    'trm_npz_read': (c_int, (c_void_p, c_char_p, POINTER(trm_tensor), POINTER(trm_error),),
        'file name into err',
        """Copies an array out.
          param    into: data, dtype and shape are set by the caller and must be the file's
          errors   INVALID (with both shapes or types)
        """),
    'trm_file_write': (c_int, (c_char_p, c_void_p, c_size_t, POINTER(trm_error),),
        'path data bytes err',
        """Writes a small file, replacing the one that was there.
          param    data: [bytes]
          errors   IO (also: the path is a folder or a device), NOSPACE
        """),
    'trm_path_check': (c_int, (c_char_p, c_bool, POINTER(trm_error),),
        'path folder err',
        """Checks before long work that its result can be written to a path. Changes nothing.
          param    folder: false = a file: its folder must be there; true = a folder, which is made with
                   its parents
          errors   IO (also: a file's path is a folder or a device), INVALID (the path is too long)
        """),
    'trm_inspect': (c_int, (c_char_p, POINTER(trm_inspect_options), trm_line_sink, c_void_p, POINTER(trm_error),),
        'path options sink context err',
        """Recognises a file or folder by content and describes it: safetensors, a checkpoint or a
        folder of them, event file, TFRecord, .npy, .npz, ONNX, CIFAR-10 batch.
          param    options: NULL = lines, the library's kinds
                   sink: receives each line; context: for `sink`
          errors   CORRUPT (nothing fits, with the kinds that were tried; or the first fault), INVALID
                   (neither a file nor a folder), IO
        """),
    'trm_export_safetensors': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'model path err',
        """Writes parameters and states in plain float32 by the network's names (torchvision's).
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_export_npz': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'model path err',
        """Writes parameters and states as arrays for numpy.load.
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_export_onnx': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'model path err',
        """Writes the evaluation network from its input ("image", with an open batch) to "logits", opset 17.
        The model must have been made with evaluation_only.
          errors   UNSUPPORTED (naming an operator that ONNX cannot express here), INVALID (no
                   evaluation_only), IO, NOSPACE, NOMEM
        """),
    'trm_export_huggingface': (c_int, (c_void_p, POINTER(trm_huggingface_options), c_char_p, POINTER(trm_error),),
        'model options folder err',
        """Writes a folder that AutoModelForCausalLM.from_pretrained loads (bert: BertForMaskedLM, vit:
        ViTForImageClassification): config.json, model.safetensors, or files of at most shard_bytes with
        model.safetensors.index.json, the tokenizer's files, and for vit the preprocessor_config.json of
        AutoImageProcessor. Makes the folder; config.json is the last file that is written. Adapters
        without `merge`: adapter_model.safetensors and adapter_config.json of PeftModel.from_pretrained,
        in a folder without the weights of a whole model.
          errors   UNSUPPORTED (options that transformers' model does not have), INVALID, IO, NOSPACE,
                   NOMEM
        """),
    'trm_huggingface_read': (c_int, (c_char_p, POINTER(c_char_p), POINTER(trm_language_options), POINTER(trm_error),),
        'folder model network err',
        """Reads the model and its options from the folder's config.json.
          param    model: name of the language model, written; a static string
          errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have)
        """),
    'trm_huggingface_read_image': (c_int, (c_char_p, POINTER(c_char_p), POINTER(trm_network_options), POINTER(c_int64), POINTER(trm_error),),
        'folder model network image_size err',
        """Reads an image model, its options and the height and width of its images from the folder's
        config.json.
          param    model: "vit", written; a static string
          errors   IO, CORRUPT, UNSUPPORTED (naming the setting that the model here does not have)
        """),
    'trm_ps_place': (c_int, (POINTER(trm_ps_variable), c_int32, POINTER(trm_partition), c_int, POINTER(trm_placement), POINTER(trm_error),),
        'variables count partition kind out err',
        """Computes the placements of dense variables, in the order of their creation.
          param    variables: [count]
                   out: [count] placements for trm_table_options, written
                   partition: NULL = each variable is one part
                   kind: rule of all placements
          errors   INVALID
          threads  any
        """),
    'trm_pool_rows': (None, (POINTER(trm_bags), POINTER(c_float),),
        'bags out',
        """Pools the rows of bags: out[b] = scale_b * sum over the rows i of bag b of weight_i * rows[i];
        scale_b is 1, 1 / sum(weights) or 1 / sqrt(sum(weights^2)) (TensorFlow's definitions). An empty
        bag gives zeros.
          param    out: [count][width], written
          threads  any
        """),
    'trm_pool_rows_gradient': (None, (POINTER(trm_bags), POINTER(c_float), POINTER(c_float), POINTER(c_float),),
        'bags d_out d_rows d_weights',
        """Computes the gradient of trm_pool_rows: d_rows[i] = scale_b * weight_i * d_out[b].
          param    bags: without d_weights, `rows` may be NULL
                   d_out: [count][width]
                   d_rows: [offsets[count]][width], written
                   d_weights: [offsets[count]] the exact derivative, also through scale_b, written;
                   NULL = not wanted
          threads  any
        """),
    'trm_feature_key': (c_uint64, (c_uint32, c_void_p, c_size_t, c_uint64,),
        'feature value bytes buckets',
        """Returns the key of a categorical value: a 64-bit hash (XXH3) of its bytes, seeded by the
        feature's number, so that equal texts of two features differ.
          param    buckets: > 0: the key is folded into [0, buckets); 0: 64 bits
          threads  any
        """),
    'trm_ps_server_start': (c_int, (POINTER(trm_ps_server_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Starts a server, after loading its folder (newest complete checkpoint, then the logs).
          errors   INVALID, NOMEM, IO, CORRUPT, UNSUPPORTED (a folder of another version)
          owns     caller: trm_ps_server_stop(*out)
        """),
    'trm_ps_server_address': (c_char_p, (c_void_p,),
        'server',
        """Returns the address, "127.0.0.1:41234"; "" without a listener.
          owns     the server
        """),
    'trm_ps_server_wait': (c_int, (c_void_p, c_double,),
        'server timeout_seconds',
        """Waits until a client has stopped the servers (trm_ps_stop_servers).
          param    timeout_seconds: limit of this wait; 0 = only asks
          returns  TRM_PENDING: the caller must stop the server and start it again with the same options
                   and address: a worker and another server died in the middle of a synchronous step that
                   this server has applied. Started again, it reads its logs without that step, so that
                   all servers have the rows of the step before
          errors   TIMEOUT
          threads  any
        """),
    'trm_ps_server_stop': (None, (c_void_p,),
        'server',
        """Ends all connections and threads and frees the server. NULL is accepted."""),
    'trm_ps_client_create': (c_int, (POINTER(trm_ps_client_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Connects to all servers.
          errors   INVALID, TIMEOUT and PEER (naming the server), NOMEM
          owns     caller: trm_ps_client_destroy(*out)
          threads  one thread at a time per client, its batches included
        """),
    'trm_ps_client_destroy': (None, (c_void_p,),
        'client',
        """Announces to the servers that this worker has finished, and frees the client. Unanswered pushes
        are lost (trm_ps_flush first). A worker without leases whose latest pull, push or flush has
        failed is not announced as finished: the servers wait for its next life. NULL is accepted.
        """),
    'trm_ps_client_next_batch': (c_int64, (c_void_p,),
        'client',
        """Returns the number of this worker's next batch: after a restart, after those that the servers
        have received.
        """),
    'trm_ps_client_table': (c_int, (c_void_p, POINTER(trm_table_options), POINTER(c_int32), POINTER(trm_error),),
        'client options table err',
        """Declares a table on all servers. Workers declare the same tables in the same order, with the same
        options, and so does a job that is resumed (only its staleness may be another one): a table that
        is there keeps its options, and the servers name one that is declared differently.
          param    table: its number, written
          errors   INVALID (options; one differs from those that the table has), those of
                   trm_ps_pull_wait
        """),
    'trm_ps_client_cache': (c_int, (c_void_p, c_int32, c_int64, POINTER(trm_error),),
        'client table rows err',
        """Keeps hot rows of one table in this client, each for cache_staleness batches. Without effect for
        0 rows, or if the table has a cache (cache_rows of the options).
          errors   INVALID, NOMEM
        """),
    'trm_ps_batch_create': (c_int, (c_void_p, POINTER(c_void_p), POINTER(trm_error),),
        'client out err',
        """Creates a batch: slices of keys of any tables, pulled with one request a server and pushed with
        one. Keys may repeat, within and across slices of a table: each is sent once.

            trm_ps_batch_clear(batch);
            trm_ps_batch_add(batch, users, keys, 4096, rows, gradients, &err);     a few times
            trm_ps_pull_start(batch, &err);        for instance while the batch before is computed
            trm_ps_pull_wait(batch, &err);         rows[i] is the row of keys[i]
            ... gradients[i] = d loss / d rows[i]
            trm_ps_push(batch, NULL, &err);        does not wait, unless pushes_ahead are unanswered

          errors   NOMEM
          owns     caller: trm_ps_batch_destroy(*out), before the client
        """),
    'trm_ps_batch_destroy': (None, (c_void_p,),
        'batch',
        """Frees the batch. NULL is accepted."""),
    'trm_ps_batch_clear': (None, (c_void_p,),
        'batch',
        """Removes all slices of the batch."""),
    'trm_ps_batch_add': (c_int, (c_void_p, c_int32, POINTER(c_uint64), c_int64, POINTER(c_float), POINTER(c_float), POINTER(trm_error),),
        'batch table keys count rows gradients err',
        """Adds a slice of keys.
          param    keys: [count]
                   rows: [count][width] written by the pull; NULL = not wanted
                   gradients: [count][width] read by the push; NULL = none
          errors   INVALID, NOMEM
          owns     arrays are borrowed until the push or trm_ps_batch_clear
        """),
    'trm_ps_pull_start': (c_int, (c_void_p, POINTER(trm_error),),
        'batch err',
        """Sends the requests of a pull and returns.
          errors   as trm_ps_pull_wait
        """),
    'trm_ps_pull_wait': (c_int, (c_void_p, POINTER(trm_error),),
        'batch err',
        """Waits for a pull and writes the rows of all slices.
          errors   TIMEOUT (naming the server, or the workers that a bound waits for), PEER, INVALID,
                   CORRUPT (a malformed answer), CANCELLED (options.stopped), NOMEM
        """),
    'trm_ps_read': (c_int, (c_void_p, POINTER(trm_error),),
        'batch err',
        """Reads the present rows, without waiting for a staleness bound and without counting as a batch.
        For saving and inspection.
          errors   as trm_ps_pull_wait
        """),
    'trm_ps_push': (c_int, (c_void_p, POINTER(trm_ps_push_options), POINTER(trm_error),),
        'batch options err',
        """Pushes the gradients and finishes the batch: the worker's clock rises even if no slice has
        gradients. Waits only if pushes_ahead pushes are unanswered.
          param    options: NULL = no lease, rate 1
          errors   as trm_ps_pull_wait; CANCELLED (the lease is lost)
        """),
    'trm_ps_flush': (c_int, (c_void_p, POINTER(trm_error),),
        'client err',
        """Waits until all pushes are answered.
          errors   as trm_ps_pull_wait
        """),
    'trm_ps_lease_take': (c_int, (c_void_p, POINTER(trm_ps_lease_options), POINTER(trm_ps_lease), POINTER(trm_error),),
        'client options lease err',
        """Takes the next lease of samples.
          param    lease: written
          errors   END (all epochs are used), PENDING (other workers still work on the last leases of the
                   epoch: call again), INVALID (other numbers than before), those of trm_ps_pull_wait
        """),
    'trm_ps_client_get_stats': (None, (c_void_p, POINTER(trm_ps_client_stats),),
        'client out',
        """Gives the work of the client."""),
    'trm_ps_table_get_stats': (c_int, (c_void_p, c_int32, POINTER(trm_table_stats), POINTER(trm_error),),
        'client table out err',
        """Gives a table's content and work, summed over all servers and shards.
          errors   as trm_ps_pull_wait
        """),
    'trm_ps_row': (c_int, (c_void_p, c_int32, c_uint64, POINTER(trm_row_info), POINTER(c_float), POINTER(c_float), POINTER(trm_error),),
        'client table key info values slots err',
        """Reads one row with its state.
          param    info, values, slots: written: values [width], slots as many as the rule has; NULL =
                   not wanted
          errors   END (there is none), those of trm_ps_pull_wait
        """),
    'trm_ps_workers': (c_int, (c_void_p, POINTER(trm_ps_worker), c_int32, POINTER(c_int32), POINTER(trm_error),),
        'client workers capacity count err',
        """Lists the workers that have connected so far.
          param    workers: [capacity], written
                   count: number of workers, also if above capacity, written
          errors   as trm_ps_pull_wait
        """),
    'trm_ps_chief_request': (c_int, (c_void_p, c_int, c_double, POINTER(trm_ps_chief), POINTER(trm_error),),
        'client wish timeout_seconds out err',
        """Requests or renews the lease of the chief's duties.
          param    timeout_seconds: of this request; 0 = the client's
                   wish: how the caller wants to be chief
          errors   as trm_ps_pull_wait; CANCELLED (another process has this worker's number)
        """),
    'trm_ps_leave': (c_int, (c_void_p, POINTER(trm_error),),
        'client err',
        """Ends this worker's part in training: it pushes no more, no process waits for it, and its samples
        go to other workers. It may still read, and be the chief. If a server's disk is full, the
        call repeats the goodbye until timeout_seconds of the client are over.
          errors   as trm_ps_pull_wait; IO, NOSPACE (a server that is started again would wait for this
                   worker)
        """),
    'trm_ps_checkpoint': (c_int, (c_void_p, c_bool, POINTER(trm_ps_checkpoint_result), POINTER(trm_error),),
        'client differential result err',
        """Writes a consistent snapshot of all shards of all servers, while workers go on: every push is in
        it on all servers or on none. Files go to each server's folder; their list, written last, to
        `folder`/MANIFEST-<number>.json (one folder when servers share it).
          param    differential: true = only changes since the snapshot before (full when there is none)
                   result: written
          errors   INVALID, IO, NOSPACE, TIMEOUT, PEER: the snapshot does not exist; CANCELLED (another
                   worker is the chief); NOMEM: it may exist
        """),
    'trm_ps_stop_servers': (c_int, (c_void_p, POINTER(trm_error),),
        'client err',
        """Ends all servers: trm_ps_server_wait returns.
          errors   as trm_ps_pull_wait; CANCELLED (another worker is the chief)
        """),
    'trm_ps_folder_open': (c_int, (c_char_p, POINTER(trm_ps_folder_options), POINTER(c_void_p), POINTER(trm_error),),
        'path options out err',
        """Loads the folder of a job's servers.
          param    options: zero: newest snapshot with logs, all tables
          errors   INVALID (no checkpoint, no such table), IO, CORRUPT (file, block, offset), UNSUPPORTED
                   (a folder of another version), NOMEM
          owns     caller: trm_ps_folder_close(*out)
        """),
    'trm_ps_folder_close': (None, (c_void_p,),
        'folder',
        """Frees the folder. NULL is accepted."""),
    'trm_ps_folder_get_info': (None, (c_void_p, POINTER(trm_ps_folder_info),),
        'folder out',
        """Gives a summary of the folder."""),
    'trm_ps_folder_table': (POINTER(trm_table_options), (c_void_p, c_int32, POINTER(c_int64), POINTER(c_int32),),
        'folder table rows slots',
        """Returns the options of a table.
          param    rows: number of loaded rows, written
                   slots: values of slots of a row, written
          owns     the folder
        """),
    'trm_ps_folder_row': (c_int, (c_void_p, c_int32, c_uint64, POINTER(trm_row_info), POINTER(c_float), POINTER(c_float), POINTER(trm_error),),
        'folder table key info values slots err',
        """Reads one row with its state; parameters as in trm_ps_row.
          errors   END (there is none), INVALID
        """),
    'trm_ps_folder_writers': (c_int32, (c_void_p, trm_ps_writer * 16, POINTER(c_int64),),
        'folder out total',
        """Lists the pushes of the logs that changed the row `options.key`, the last first.
          param    total: number of such pushes, written
          returns  number of entries in out
        """),
    'trm_ps_folder_each': (c_int, (c_void_p, c_int32, trm_ps_row_fn, c_void_p, POINTER(trm_error),),
        'folder table see context err',
        """Calls `see` for every loaded row of a table, in no order, until it returns anything but TRM_OK.
          param    context: for `see`
          errors   INVALID (no such table), NOMEM, the error that `see` returned
        """),
    'trm_ps_client_adopt': (c_int, (c_void_p, POINTER(c_int32), POINTER(trm_error),),
        'client count err',
        """Adopts the tables that the servers have, so that a client that has declared none (worker -1) can
        read them: 0 to *count - 1.
          param    count: number of tables, written
          errors   as trm_ps_client_table
        """),
    'trm_ps_client_table_options': (POINTER(trm_table_options), (c_void_p, c_int32, POINTER(c_int32),),
        'client table slots',
        """Returns the options of a table of this client; NULL if there is none.
          param    slots: values of slots of a row, written
          owns     the client
        """),
    'trm_ps_audit_row': (c_int, (c_void_p, c_int32, c_uint64, POINTER(trm_row_info), POINTER(c_float), POINTER(c_float), trm_ps_writer * 16, POINTER(c_int32), POINTER(trm_error),),
        'client table key info values slots writers writer_count err',
        """Reads one row with its state and the pushes that changed it last (several if their sum did; none
        if that was more than 2048 pushes ago, or before the server started, without logs). Other
        parameters as in trm_ps_row.
          param    writers, writer_count: written; both may be NULL
          errors   END (there is none), CORRUPT (an answer of another size), those of trm_ps_pull_wait
        """),
    'trm_inputs_get': (trm_node, (c_void_p, c_char_p,),
        'inputs name',
        """Returns the input of this name ("image", "label"), of the type and shape that the field has in a
        batch of the dataset. If the dataset has no such field, returns TRM_NO_NODE, and the graph keeps
        an error that lists the fields.
        """),
    'trm_loss_softmax': (trm_node, (c_void_p, trm_node, c_void_p, c_void_p,),
        'graph logits inputs context',
        """Adds the mean softmax cross-entropy of the field "label", the default loss of a model. An
        evaluation graph leaves label smoothing out.
          param    context: const trm_xent_options *, or NULL
        """),
    'trm_loss_softmax_expand': (trm_node, (c_void_p, trm_node, c_void_p, c_void_p,),
        'graph logits inputs context',
        """Adds trm_softmax_cross_entropy_expand of the field "label".
          param    context: unused
          level    expert
        """),
    'trm_loss_logistic': (trm_node, (c_void_p, trm_node, c_void_p, c_void_p,),
        'graph logits inputs context',
        """Adds the mean logistic loss of the field "label" (float32, 0 or 1) for logits [N] or [N, 1].
          param    context: unused
        """),
    'trm_softmax_cross_entropy_expand': (trm_node, (c_void_p, trm_node, trm_node,),
        'graph logits labels',
        """Adds the softmax cross-entropy as small operators (max, sub, exp, sum, div, one-hot, log, mul,
        sum, mul, mean): logits [N, K], labels int32 [N] -> scalar. Value and gradient agree with
        trm_softmax_cross_entropy to 1e-6 while no probability underflows.
          level    expert
        """),
    'trm_learning_rate_at': (c_double, (POINTER(trm_learning_rate), c_uint64,),
        'rate step',
        """Returns the rate of the update that makes global step `step` + 1 (the first has step 0). Warm-up
        step s of w has start + (base - start) * (s + 1) / w; decay progresses over the steps after
        warm-up.
          threads  any
        """),
    'trm_model_create': (c_int, (POINTER(trm_model_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Builds the graphs and compiles them. Collective with many ranks.
          errors   INVALID (options, graph), NOMEM (with the bytes needed and present), those of
                   trm_exec_create
          owns     caller: trm_model_destroy(*out)
        """),
    'trm_model_destroy': (None, (c_void_p,),
        'model',
        """Frees the model. NULL is accepted."""),
    'trm_model_exec': (c_void_p, (c_void_p,),
        'model',
        """Returns the compiled training program; with evaluation_only the evaluation program.
          owns     the model
        """),
    'trm_model_graph': (c_void_p, (c_void_p, POINTER(trm_node),),
        'model logits',
        """Returns the graph that the program was compiled from, before differentiation.
          param    logits: node of the logits, written; NULL = not wanted
          owns     the model
        """),
    'trm_model_global_step': (c_uint64, (c_void_p,),
        'model',
        """Returns the steps since the initial values."""),
    'trm_model_request_stop': (None, (c_void_p,),
        'model',
        """Ends the running trm_model_train after its current step, in sink mode too: callbacks save, and it
        returns TRM_CANCELLED; with many ranks on all of them, one step later. Without a running call the
        next one returns at once.
          threads  any; may be called from a signal handler
        """),
    'trm_model_request_leave': (None, (c_void_p,),
        'model',
        """Makes this rank leave its elastic job after the current step; its trm_model_train returns
        TRM_END, and the others go on. Where too few ranks would be left, all stop as by
        trm_model_request_stop; so does a model of no elastic job.
          threads  any; may be called from a signal handler
        """),
    'trm_model_set_note': (c_int, (c_void_p, c_char_p, c_double, POINTER(trm_error),),
        'model name value err',
        """Keeps a named number in the model's checkpoints, for callbacks whose state must survive a resume
        (the best loss so far). At most 32 names of at most 47 bytes.
          errors   INVALID (too many names, a name that is too long)
        """),
    'trm_model_get_note': (c_bool, (c_void_p, c_char_p, POINTER(c_double),),
        'model name value',
        """Gives the number of this name.
          param    value: written if there is one
          returns  false if there is none
        """),
    'trm_model_evaluate': (c_int, (c_void_p, c_void_p, POINTER(trm_evaluation), POINTER(trm_error),),
        'model data out err',
        """Evaluates the model on one pass over `data`, with its parameters and running statistics. The
        first call compiles the evaluation program for the dataset's batch size; it shares the
        parameters' memory. Neither training nor evaluation needs the other before it.
          param    data: has all fields that network and loss use
          errors   INVALID (a missing field), those of the dataset, CANCELLED (trm_model_request_stop)
        """),
    'trm_model_predict': (c_int, (c_void_p, c_void_p, trm_prediction_fn, c_void_p, POINTER(trm_evaluation), POINTER(trm_error),),
        'model data see context out err',
        """Evaluates, and gives each batch's logits to `see` in the order of the data. With many ranks, each
        receives its own shard.
          param    see: receives the batches; context: for `see`
                   out: NULL = not wanted: then the data needs no fields that the loss alone reads
                   (labels)
          errors   those of trm_model_evaluate, and the error that `see` returned
        """),
    'trm_model_evaluate_steps': (c_int, (c_void_p, c_void_p, c_int64, POINTER(trm_evaluation), POINTER(trm_error),),
        'model data steps out err',
        """Evaluates the model on at most the first `steps` batches of each rank; else as
        trm_model_evaluate.
          errors   as trm_model_evaluate; INVALID: `steps` below 1
          level    expert
        """),
    'trm_model_train': (c_int, (c_void_p, POINTER(trm_train_options), POINTER(trm_error),),
        'model options err',
        """Trains from the model's position: the initial values, or the resumed step.
          errors   CANCELLED (trm_model_request_stop), END (trm_model_request_leave; the model keeps the
                   state of the last step), DIVERGED (naming the first operator), INVALID (also in a
                   process that has come to an elastic job with another model, other data or options than
                   the job has: it calls trm_elastic_destroy, for which the ranks wait 10 s at most),
                   those of the dataset and of the callbacks
        """),
    'trm_model_epoch_steps': (c_int64, (c_void_p, c_void_p,),
        'model data',
        """Returns the steps of an epoch of `data`, with the model's accumulation. Shards the data over the
        model's ranks, as trm_model_train does; 0 if the pipeline does not check.
        """),
    'trm_model_save': (c_int, (c_void_p, c_void_p, POINTER(trm_error),),
        'model writer err',
        """Saves the whole state as directory/ckpt-STEP (trireme/io.h): parameters and states in part
        "model", slots in part "optimizer", and step, epoch, position in the data, seed and notes. Only
        between steps: from a callback, or outside of training. With many ranks all call it and rank 0
        writes.
          param    writer: of rank 0; unused on other ranks
          errors   those of trm_checkpoint_save; earlier checkpoints are intact
        """),
    'trm_model_resume': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'model path err',
        """Restores the whole state from a checkpoint, or from the newest sound one of a directory. Damaged
        ones are skipped with a warning in the log. The next trm_model_train continues bit for bit.
          errors   END (no checkpoint there, nothing changed), CORRUPT (only damaged ones), INVALID (of
                   another network, optimiser, batch size or seed)
        """),
    'trm_model_load': (c_int, (c_void_p, c_char_p, c_bool, POINTER(c_int32), POINTER(trm_error),),
        'model path partial skipped err',
        """Reads only parameters and states, from a checkpoint (or the newest sound one of a directory) or a
        .safetensors file, or a Hugging Face folder (trireme/io.h). All of them are read before the
        first one is set, which takes memory for a second copy meanwhile: an error changes nothing. The
        log names tensors of a file or folder that the network does not have.
          param    partial: false = every parameter and state must be in the file with its shape; true =
                   others keep their values
                   skipped: number of those, written; NULL = not wanted
          errors   IO, CORRUPT, NOMEM, INVALID (naming the first tensor that does not fit)
        """),
    'trm_loss_monitor': (trm_callback, (c_int64, trm_print,),
        'every print',
        """Prints "epoch: 1 step: 156, loss is 2.0084016" every `every` steps; in sink mode once an epoch,
        with the loss of the epoch's (or run's) last step.
          param    every: steps; 0 = only at the end of each epoch and of training
                   print: receives the lines
        """),
    'trm_time_monitor': (trm_callback, (trm_print,),
        'print',
        """Prints "epoch time: 4321.123 ms, per step time: 27.699 ms" at the end of each epoch.
          param    print: receives the lines
        """),
    'trm_model_checkpoint': (trm_callback, (POINTER(trm_model_checkpoint_options),),
        'options',
        """Saves checkpoints as the options say, and at the end of training or when it is stopped. Sink
        mode: only between epochs (and when stopped), at the end of the epoch in which one was due. If
        the disk is full (NOSPACE), a save is left out with a warning and tried again when the next one
        is due; the last one then fails. An elastic job that begins at step 0 fails (INVALID) where the
        directory has checkpoints: its ranks may be those of an ended job, started again.
        """),
    'trm_evaluate_every': (trm_callback, (c_void_p, c_int64,),
        'data every_epochs',
        """Evaluates at the end of every `every_epochs`-th epoch and calls the other callbacks'
        on_evaluated.
          param    data: test set, borrowed
                   every_epochs: 0 = 1
        """),
    'trm_early_stop': (trm_callback, (POINTER(trm_early_stop_options),),
        'options',
        """Stops training when the watched value no longer improves. Its state is kept in checkpoints. A
        value of evaluations needs trm_evaluate_every in the same list (else INVALID).
        """),
    'trm_metrics_recorder': (trm_callback, (c_char_p, c_int64,),
        'path every',
        """Writes a file of metrics (trireme/io.h): a line every `every` steps, at the end of each epoch,
        and for each evaluation. A resumed run continues the file; lines of steps that come again are
        dropped first. A full disk is logged once and does not stop training.
          param    path: ends in .csv or .jsonl
                   every: 0 = 1
        """),
    'trm_run_recorder': (trm_callback, (c_char_p, c_int64,),
        'directory every',
        """Appends the events of training to DIRECTORY/run.jsonl, which `trireme report` and `trireme top`
        read (docs/guides/reports.md): start, steps, evaluations, checkpoints, changes of ranks, end.
        Rank N writes run-rank-N.jsonl beside it, from which reports have its waiting. A line that cannot
        be written is logged once, and training goes on.
          param    every: a step is written every `every` steps, the first, and the last of an epoch; 0 =
                   100
        """),
    'trm_take_mean_step': (trm_mean_step, (POINTER(trm_report_mark), POINTER(trm_progress),),
        'mark progress',
        """Returns the mean of the steps since the mark, and moves the mark.
          level    expert
        """),
    'trm_event_name': (c_char_p, (c_int,),
        'event',
        """Returns the name of an event in JSON ("step").
          owns     static string
          level    expert
        """),
    'trm_event_members': (c_size_t, (c_int, POINTER(trm_progress), POINTER(trm_mean_step), c_char_p, c_size_t,),
        'event progress mean text size',
        """Writes the members of an event as JSON, without the braces: "epoch":1,"step":20,...
          param    mean: of a step; NULL = left out
                   text: [size] receives the text, cut at its end if it is longer; NULL with 0 = not
                   wanted
          returns  bytes of the whole text without the terminating zero; 0 = there is no memory, or the
                   progress has no such event
          level    expert
        """),
    'trm_tensorboard': (trm_callback, (POINTER(trm_tensorboard_options),),
        'options',
        """Writes an event file: loss, learning rate, images per second, evaluation, on request histograms
        and the graph. A resumed run begins a new file that says from which step on.
        """),
    'trm_estimator_create': (c_int, (trm_model_fn, c_void_p, POINTER(trm_run_config), POINTER(c_void_p), POINTER(trm_error),),
        'model_fn params config out err',
        """Creates an estimator and checks the configuration as a whole.
          errors   INVALID (naming the field and what to set), NOMEM
          owns     caller: trm_estimator_destroy(*out); strings and strategy are copied, cluster and
                   params must outlive it
        """),
    'trm_estimator_destroy': (None, (c_void_p,),
        'estimator',
        """Frees the estimator. NULL is accepted."""),
    'trm_train_and_evaluate': (c_int, (c_void_p, POINTER(trm_train_spec), POINTER(trm_eval_spec), POINTER(trm_job_result), POINTER(trm_error),),
        'estimator train eval out err',
        """Does the work of this process's role to its end: a worker or chief trains, a server serves until
        the chief ends the job, an evaluator evaluates each new checkpoint.
          param    train: NULL = allowed on a server
                   eval: NULL = nothing is evaluated
                   out: result of this process's part, written
          errors   INVALID (specs), TIMEOUT and PEER (naming the process that was waited for), CANCELLED
                   (trm_estimator_request_stop, after saving), those of training and of checkpoints
        """),
    'trm_estimator_request_stop': (None, (c_void_p,),
        'estimator',
        """Ends the running trm_train_and_evaluate soon.
          threads  any; may be called from a signal handler
        """),
    'trm_estimator_plan': (c_int, (c_void_p, c_bool, POINTER(c_void_p), POINTER(trm_error),),
        'estimator json out err',
        """Describes what this process will do, checked as far as possible without the other processes:
        lines for people, or one JSON object.
          errors   NOMEM
          owns     caller: trm_free(*out)
        """),
    'trm_ps_initial_open': (c_int, (c_char_p, POINTER(trm_ps_source), POINTER(trm_error),),
        'folder out err',
        """Opens the rows with which the servers that keep `folder` (model_dir/ps) began: the weights of a
        warm start, for trm_ps_folder_options. out->read is NULL if rows began with initial values.
          errors   IO (the file is gone), CORRUPT, NOMEM
          owns     caller: trm_ps_initial_close(out)
        """),
    'trm_ps_initial_close': (None, (POINTER(trm_ps_source),),
        'source',
        """Closes what trm_ps_initial_open has opened. An empty source ({0}) is accepted."""),
    'trm_top_k_add': (None, (POINTER(trm_top_k), POINTER(c_float), POINTER(c_int32), c_int64, c_int64,),
        'top logits labels rows classes',
        """Adds the rows of a batch.
          param    logits: [rows, classes]
                   labels: [rows]; rows with a label < 0 or >= classes are left out
        """),
    'trm_top_k_value': (c_double, (POINTER(trm_top_k), c_int,),
        'top k',
        """Returns the top-k accuracy, 0 to 1; 0 without samples.
          param    k: 1 to 5
        """),
    'trm_auc_create': (c_int, (POINTER(c_void_p), POINTER(trm_error),),
        'out err',
        """Creates the counts of a binary metric, 1 MB.
          errors   NOMEM
          owns     caller: trm_auc_destroy(*out)
        """),
    'trm_auc_destroy': (None, (c_void_p,),
        'auc',
        """Frees the counts. NULL is accepted."""),
    'trm_auc_reset': (None, (c_void_p,),
        'auc',
        """Sets the counts to zero."""),
    'trm_auc_add': (None, (c_void_p, POINTER(c_float), POINTER(c_float), c_int64,),
        'auc logits labels rows',
        """Adds the rows of a batch. NaN logits are counted as such only.
          param    logits: [rows]
                   labels: [rows]: above 0.5 is positive
        """),
    'trm_auc_merge': (None, (c_void_p, c_void_p,),
        'into from',
        """Adds the counts of another object."""),
    'trm_auc_get': (None, (c_void_p, POINTER(trm_auc_values),),
        'auc out',
        """Computes the values of all samples that were added."""),
    'trm_mesh_ranks': (c_int, (c_char_p, POINTER(c_int32), POINTER(trm_error),),
        'mesh ranks err',
        """Gives the number of ranks of a mesh: "8", "2x4", "host=2xlocal=4".
          param    ranks: written
          errors   INVALID (the character, and what was expected)
          threads  any
        """),
    'trm_planner_create': (c_int, (POINTER(trm_model_options), POINTER(trm_planner_options), POINTER(c_void_p), POINTER(trm_error),),
        'model options out err',
        """Searches the plan for a model and its alternatives. Collective with a communicator: on ranks
        other than 0 *out is NULL (with `remeasures` a planner for trm_planner_remeasure and
        trm_planner_destroy only), and the error is rank 0's cause or their own.
          param    model: as for trm_model_create; its data is the batch of one rank, the global batch is
                   ranks times that, unless exec.parallel.batch is TRM_BATCH_OF_JOB. exec.memory_bytes is
                   the limit of a rank. Of exec.parallel count:
                   comm: as many ranks of this machine as are planned for. Operators are measured on all
                   of them at once, and messages between them, unless `links` gives their costs; rank 0
                   plans, the others measure. NULL = operators are measured on this process alone
                   split.mesh: NULL = every factorisation is searched
                   split.plan: of this graph, compared as "the given plan"; its pins are kept
                   split.search, split.trials, split.trial_seconds
                   block: plans of strict determinism only
                   wire, sync_batch_norm (1 or all), and shard_optimizer, which is on for ranks of one
                   host; over several hosts each rank updates a slice and gathers the others
          errors   INVALID (names, meshes, links, a plan of another graph, with what was expected), CORRUPT
                   (split.plan, with line, found and expected), NOMEM, CANCELLED (`stop`), those of the
                   network
          owns     caller: trm_planner_destroy(*out); `model`, its data and contexts are borrowed until
                   then
        """),
    'trm_planner_destroy': (None, (c_void_p,),
        'planner',
        """Frees the planner. NULL is accepted."""),
    'trm_planner_get_info': (None, (c_void_p, POINTER(trm_planner_info),),
        'planner out',
        """Describes the chosen plan and the search."""),
    'trm_planner_report': (c_void_p, (c_void_p, c_bool,),
        'planner json',
        """Returns the whole report, for people or as one JSON object.
          returns  NULL when memory is out
          owns     caller: trm_free
        """),
    'trm_planner_svg': (c_void_p, (c_void_p,),
        'planner',
        """Returns a picture of the operators, by how they are cut, as SVG.
          returns  NULL when memory is out
          owns     caller: trm_free
          level    unstable
        """),
    'trm_planner_dot': (c_void_p, (c_void_p,),
        'planner',
        """Returns the graph of the operators, by how they are cut, as DOT.
          returns  NULL when memory is out
          owns     caller: trm_free
          level    unstable
        """),
    'trm_planner_plan': (c_void_p, (c_void_p, c_int32, POINTER(trm_planner_candidate),),
        'planner index about',
        """Returns a plan as the text of a plan file, which can be read, changed, pinned and given to
        training. Index 0 is the chosen plan; then other good plans and the baselines, by rising
        predicted time.
          param    about: description of the plan, written; NULL = not wanted
          returns  NULL: no such index
          owns     caller: trm_free
        """),
    'trm_planner_remeasure': (c_int, (c_void_p, POINTER(trm_error),),
        'planner err',
        """Measures again the operators and messages of the plans of trm_planner_plan, with a third of the
        samples. On shared machines costs drift, so a program that compares predictions with runs calls
        this between the runs. The plans and their numbers stay; predictions then use each cost's median
        over all measurements, up to 8 with that of the search. Times of runs are never used. Needs
        options.remeasures; without effect where costs are not measured. Collective.
          errors   those of the network, NOMEM
          level    unstable
        """),
    'trm_planner_save': (c_int, (c_void_p, c_char_p, POINTER(trm_error),),
        'planner file err',
        """Writes the chosen plan to a file, complete or not at all.
          errors   IO, NOSPACE, NOMEM
        """),
    'trm_plan_read': (c_int, (c_char_p, POINTER(trm_plan_info), POINTER(c_void_p), POINTER(trm_error),),
        'file out text err',
        """Reads a plan file. Needs no model.
          param    text: the plan's own lines in order, written; NULL = not wanted
          errors   IO, CORRUPT (with line, found and expected), NOMEM
          owns     caller: trm_free(*text)
        """),
    'trm_planner_share': (c_int, (c_void_p, c_void_p, POINTER(trm_plan_info), POINTER(c_void_p), POINTER(trm_error),),
        'planner comm out text err',
        """Gives the chosen plan of rank 0's planner to all ranks, so that they train by it without a file.
        Collective.
          param    planner: that of rank 0; NULL on the other ranks, and on rank 0 after an error, which
                   all ranks then get
                   comm: the ranks that train
          errors   INVALID (rank 0 has no plan), NOMEM, those of the communicator
          owns     caller: trm_free(*text)
        """),
    'trm_plan_follow': (None, (POINTER(trm_plan_info), c_char_p, POINTER(trm_model_options),),
        'plan text model',
        """Sets the options with which a model trains by a plan: exec.parallel.split and pipeline, and with
        stages exec.recompute and accumulate, the number of micro-batches. The model's data must then
        have batches of one micro-batch: the global batch over micro_batches, and of that, where ranks
        feed their own samples, one part for each rank of a stage.
          owns     caller: `plan` and `text`, borrowed until trm_model_create has returned
        """),
    'trm_planner_simulate': (c_int, (c_void_p, POINTER(trm_simulation_options), POINTER(c_void_p), POINTER(trm_error),),
        'planner options text err',
        """Simulates the events of the chosen plan, with one rank for all that do the same: strong and weak
        scaling, and the effect of each link, of the operators and of a slow rank.
          errors   IO and NOSPACE (the trace), NOMEM
          owns     caller: trm_free(*text)
          level    unstable
        """),
    'trm_planner_run': (c_int, (POINTER(trm_model_options), c_void_p, POINTER(trm_planner_run_options), POINTER(trm_planner_run_result), POINTER(trm_error),),
        'model comm options out err',
        """Runs a plan for a few steps on random data, to compare a prediction with. Collective.
          param    model: as for trm_planner_create
                   comm: the ranks that run; NULL = this process alone
          errors   INVALID (the plan does not fit), NOMEM, those of trm_exec_create and of the network
          level    unstable
        """),
    'trm_planner_compare': (c_int, (POINTER(trm_model_options), c_void_p, POINTER(trm_planner_compare_options), POINTER(trm_planner_comparison), POINTER(trm_error),),
        'model comm options out err',
        """Runs plans in turns, forwards and backwards, so that all plans meet the machine in the same
        states. It ends before its time when each plan's distance from the fastest is known to 1 %, or
        the plan is known to be slower. Collective.
          errors   those of trm_planner_run
          level    unstable
        """),
    'trm_hardware_plan_create': (c_int, (POINTER(trm_hardware_plan_options), POINTER(c_void_p), POINTER(trm_error),),
        'options out err',
        """Searches the fastest plan that fits, by pricing every plan of the space.
          errors   INVALID (names; hardware file, with line, found and expected text; a plan that cannot
                   be), NOMEM
          owns     caller: trm_hardware_plan_destroy(*out)
          threads  any
        """),
    'trm_hardware_plan_destroy': (None, (c_void_p,),
        'plan',
        """Frees the plan. NULL is accepted."""),
    'trm_hardware_plan_get_info': (None, (c_void_p, POINTER(trm_hardware_plan_info),),
        'plan out',
        """Describes the chosen plan."""),
    'trm_hardware_plan_report': (c_void_p, (c_void_p, c_bool,),
        'plan json',
        """Returns the report, for people or as one JSON object.
          returns  NULL when memory is out
          owns     caller: trm_free
        """),
    'trm_hardware_plan_svg': (c_void_p, (c_void_p,),
        'plan',
        """Returns a picture of the plan as SVG: stages and meshes, one step, memory. That of options.plan
        if it was given.
          returns  NULL when memory is out
          owns     caller: trm_free
        """),
    'trm_hardware_plan_export': (c_int, (c_void_p, c_char_p, c_char_p, POINTER(trm_error),),
        'plan engine directory err',
        """Writes the plan for another engine into a folder, which is created: plan.json, and for "torch"
        trireme_plan.py, for "megatron" flags.txt, for "mindspore" strategy.json and context.json.
        options.plan is exported if it was given.
          errors   INVALID (no such engine), UNSUPPORTED (the engine cannot run this plan), IO,
                   NOSPACE
        """),
    'trm_verify_kind_name': (c_char_p, (c_int,),
        'kind',
        """Returns the name of a kind ("gradient").
          owns     static string
          threads  any
        """),
    'trm_verify': (c_int, (POINTER(trm_model_options), POINTER(trm_verify_options), POINTER(POINTER(trm_verification)), POINTER(trm_error),),
        'model options out err',
        """Compares a split model with one device: three trainings of `steps` steps, and as many forward
        passes that keep the operators' outputs. Only rank 0 gets a result; the other ranks return with
        NULL in *out when the split job is done. A difference is no error. Collective over
        model->exec.parallel.comm.
          param    model: as for trm_model_create, with whole batches in model->data on every rank. Its
                   split, plan and mesh (or its context's), optimiser, schedule, accumulation, clipping,
                   loss scale and precision are used
          errors   INVALID (one rank, or nothing is split), those of trm_model_create and trm_model_train
          owns     caller: trm_verification_destroy(*out)
        """),
    'trm_verification_destroy': (None, (POINTER(trm_verification),),
        'verification',
        """Frees the result. NULL is accepted."""),
    'trm_layout': (POINTER(c_uint32), (POINTER(c_int32),),
        'count',
        """Returns the layout of all public structs in the order of the headers: the size of each, followed
        by the offsets of its members. A binding for another language compares it with its own
        declarations and so recognises a library of another version.
          param    count: length of the list, written
          owns     static
          threads  any
        """),
}


def __getattr__(name):
    if name in FUNCTIONS:
        globals()[name] = function = bind(lib, name, *FUNCTIONS[name])
        return function
    raise AttributeError(f"trireme._c has no {name}")


def __dir__():
    return sorted(list(globals()) + list(FUNCTIONS))


STRUCTS = (
    trm_error,
    trm_shape,
    trm_tensor,
    trm_optimizer_options,
    trm_machine,
    trm_shapes_options,
    trm_random_options,
    trm_batch_field,
    trm_data_source,
    trm_transform,
    trm_batch,
    trm_dataset_spec,
    trm_column,
    trm_click_options,
    trm_click_generator_options,
    trm_click_random_options,
    trm_clicks_bayes,
    trm_tokenizer_options,
    trm_tokens,
    trm_text_options,
    trm_cluster_flags,
    trm_cluster_info,
    trm_join_options,
    trm_rank_entry,
    trm_rank_table_host,
    trm_launch_role,
    trm_launch_options,
    trm_launch_result,
    trm_collective,
    trm_comm_options,
    trm_message,
    trm_elastic_options,
    trm_membership,
    trm_node,
    trm_graph_options,
    trm_conv_options,
    trm_norm_options,
    trm_attention_options,
    trm_experts,
    trm_pool_options,
    trm_xent_options,
    trm_custom_op,
    trm_split_options,
    trm_pipeline_options,
    trm_parallel_options,
    trm_loss_scale_options,
    trm_exec_options,
    trm_loss_scale_state,
    trm_variable,
    trm_parallel_info,
    trm_searched_plan,
    trm_waiting,
    trm_exec_info,
    trm_peak_memory,
    trm_machine_peak,
    trm_step_profile,
    trm_profile_options,
    trm_program_profile,
    trm_context_option,
    trm_resnet_options,
    trm_lora_options,
    trm_vit_options,
    trm_language_options,
    trm_click_inputs,
    trm_field_table,
    trm_recommender_options,
    trm_network_options,
    trm_generator_options,
    trm_sampling,
    trm_named_tensor,
    trm_text_pair,
    trm_safetensors_entry,
    trm_checkpoint_info,
    trm_checkpoint_part,
    trm_checkpoint_options,
    trm_checkpoint_open_options,
    trm_named_scalar,
    trm_events_options,
    trm_graph_event_node,
    trm_metrics_options,
    trm_npz_entry,
    trm_probe,
    trm_recogniser,
    trm_inspect_options,
    trm_huggingface_options,
    trm_row_init,
    trm_admission,
    trm_expiry,
    trm_placement,
    trm_ps_source,
    trm_table_options,
    trm_partition,
    trm_ps_variable,
    trm_table_stats,
    trm_row_info,
    trm_bags,
    trm_ps_server_options,
    trm_ps_client_options,
    trm_ps_lease,
    trm_ps_push_options,
    trm_ps_lease_options,
    trm_ps_client_stats,
    trm_ps_worker,
    trm_ps_chief,
    trm_ps_checkpoint_result,
    trm_ps_folder_options,
    trm_ps_folder_info,
    trm_ps_writer,
    trm_learning_rate,
    trm_metric,
    trm_ps_training,
    trm_model_options,
    trm_evaluation,
    trm_progress,
    trm_callback,
    trm_train_options,
    trm_model_checkpoint_options,
    trm_early_stop_options,
    trm_report_mark,
    trm_mean_step,
    trm_tensorboard_options,
    trm_input_context,
    trm_ps_strategy,
    trm_run_config,
    trm_train_spec,
    trm_exporter,
    trm_eval_spec,
    trm_job_result,
    trm_top_k,
    trm_auc_values,
    trm_planner_options,
    trm_planner_info,
    trm_planner_candidate,
    trm_plan_info,
    trm_simulation_options,
    trm_planner_run_result,
    trm_planner_run_options,
    trm_planner_comparison,
    trm_planner_compare_options,
    trm_hardware_plan_options,
    trm_hardware_plan_info,
    trm_verify_options,
    trm_verify_tensor,
    trm_verification,
)
check_layout(lib, STRUCTS)
