# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
from ctypes import CDLL, Structure
from typing import Any, Dict, Optional, Tuple, Type

lib: CDLL
ENUMS: Dict[str, Dict[str, int]]
ENUM_OF: Dict[Tuple[str, Any], str]
FUNCTIONS: Dict[str, Any]
STRUCTS: Tuple[Type[Structure], ...]

TRM_VERSION_MAJOR: int
TRM_VERSION_MINOR: int
TRM_VERSION_PATCH: int
TRM_MAX_RANK: int
TRM_MAX_BATCH_FIELDS: int
TRM_MAX_METRICS: int
TRM_MAX_METRIC_SUMS: int
TRM_MAX_CALLBACKS: int
TRM_NONE: int
TRM_ALL: int
TRM_TOKEN_BYTES: int
TRM_NORM_LOCAL: int
TRM_PEAK_SETS: int
TRM_STALENESS_NONE: int
TRM_PS_LAGS: int
TRM_PS_WRITERS: int
TRM_MAX_EXPORTERS: int
TRM_COMPARED_PLANS: int
TRM_OK: int
TRM_END: int
TRM_PENDING: int
TRM_INVALID: int
TRM_NOMEM: int
TRM_IO: int
TRM_CORRUPT: int
TRM_UNSUPPORTED: int
TRM_TIMEOUT: int
TRM_PEER: int
TRM_CANCELLED: int
TRM_INTERNAL: int
TRM_NOSPACE: int
TRM_DIVERGED: int
TRM_DEFAULT: int
TRM_ON: int
TRM_OFF: int
TRM_BAG_SUM: int
TRM_BAG_MEAN: int
TRM_BAG_SQRT_N: int
TRM_DTYPE_NONE: int
TRM_FLOAT32: int
TRM_FLOAT64: int
TRM_BFLOAT16: int
TRM_FLOAT16: int
TRM_INT8: int
TRM_UINT8: int
TRM_INT32: int
TRM_INT64: int
TRM_LOG_ERROR: int
TRM_LOG_WARN: int
TRM_LOG_INFO: int
TRM_LOG_DEBUG: int
TRM_OPTIMIZER_DEFAULT: int
TRM_SGD: int
TRM_MOMENTUM: int
TRM_ADAGRAD: int
TRM_ROWWISE_ADAGRAD: int
TRM_ADAM: int
TRM_LAZY_ADAM: int
TRM_FTRL: int
TRM_NESTEROV: int
TRM_LARS: int
TRM_USAGE_TRAIN: int
TRM_USAGE_TEST: int
TRM_USAGE_ALL: int
TRM_RESIZE_HALF_PIXEL: int
TRM_RESIZE_ORIGINAL: int
TRM_RESIZE_ANTIALIAS: int
TRM_TRANSFORM_DECODE: int
TRM_TRANSFORM_RANDOM_CROP: int
TRM_TRANSFORM_RANDOM_RESIZED_CROP: int
TRM_TRANSFORM_CENTER_CROP: int
TRM_TRANSFORM_RANDOM_FLIP: int
TRM_TRANSFORM_RESIZE: int
TRM_TRANSFORM_RESIZE_SHORTER: int
TRM_TRANSFORM_RESCALE: int
TRM_TRANSFORM_NORMALIZE: int
TRM_TRANSFORM_HWC2CHW: int
TRM_TRANSFORM_TYPE_CAST: int
TRM_SHARD_WRAP: int
TRM_SHARD_DROP: int
TRM_SHARD_PAD: int
TRM_COLUMN_SKIP: int
TRM_COLUMN_LABEL: int
TRM_COLUMN_DENSE: int
TRM_COLUMN_KEY: int
TRM_COLUMN_BAG: int
TRM_DENSE_DEFAULT: int
TRM_DENSE_RAW: int
TRM_DENSE_LOG: int
TRM_HEADER_AUTO: int
TRM_HEADER_YES: int
TRM_HEADER_NO: int
TRM_ROLE_WORKER: int
TRM_ROLE_CHIEF: int
TRM_ROLE_PS: int
TRM_ROLE_EVALUATOR: int
TRM_ROLE_SCHEDULER: int
TRM_RANK_TABLE_GROUPS: int
TRM_RANK_TABLE_TEMPLATE2: int
TRM_RANK_TABLE_V1: int
TRM_RANK_TABLE_V2: int
TRM_LAUNCH_OUT: int
TRM_LAUNCH_ERR: int
TRM_LAUNCH_NOTE: int
TRM_LAUNCH_FAILURE: int
TRM_REDUCTION_NONE: int
TRM_REDUCTION_SUM: int
TRM_REDUCTION_MEAN: int
TRM_REDUCTION_PROD: int
TRM_REDUCTION_MAX: int
TRM_REDUCTION_MIN: int
TRM_COLLECTIVE_NONE: int
TRM_ALLREDUCE: int
TRM_BROADCAST: int
TRM_REDUCE: int
TRM_ALLGATHER: int
TRM_ALLGATHERV: int
TRM_REDUCE_SCATTER: int
TRM_REDUCE_SCATTERV: int
TRM_SCATTER: int
TRM_GATHER: int
TRM_ALLTOALL: int
TRM_ALLTOALLV: int
TRM_BARRIER: int
TRM_DETERMINISTIC_FALSE: int
TRM_DETERMINISTIC_TRUE: int
TRM_DETERMINISTIC_STRICT: int
TRM_INIT_ZERO: int
TRM_INIT_ONE: int
TRM_INIT_HE_NORMAL_FAN_OUT: int
TRM_INIT_HE_UNIFORM: int
TRM_INIT_LINEAR: int
TRM_INIT_GLOROT_UNIFORM: int
TRM_INIT_NORMAL_001: int
TRM_INIT_NORMAL_002: int
TRM_INIT_NORMAL: int
TRM_GELU_ERF: int
TRM_GELU_TANH: int
TRM_PRECISION_FP32: int
TRM_PRECISION_MIXED: int
TRM_PRECISION_ORIGIN: int
TRM_BUCKET_AUTO: int
TRM_BUCKET_OFF: int
TRM_BUCKET_SIZE: int
TRM_BUCKET_LIST: int
TRM_SPLIT_NONE: int
TRM_SPLIT_PLANNED: int
TRM_SPLIT_SEARCHED: int
TRM_BATCH_DEFAULT: int
TRM_BATCH_OF_RANK: int
TRM_BATCH_OF_JOB: int
TRM_COOPERATIVE_OFF: int
TRM_COOPERATIVE_CONV: int
TRM_COOPERATIVE_ALL: int
TRM_SCHEDULE_1F1B: int
TRM_SCHEDULE_GPIPE: int
TRM_SCHEDULE_INTERLEAVED: int
TRM_VARIABLE_PARAMETER: int
TRM_VARIABLE_STATE: int
TRM_VARIABLE_SLOT: int
TRM_PEAK_READ: int
TRM_PEAK_TRIAD: int
TRM_PEAK_COPY: int
TRM_PEAK_WRITE: int
TRM_PEAK_MIXES: int
TRM_STEM_IMAGENET: int
TRM_STEM_CIFAR: int
TRM_ROW_INIT_CONSTANT: int
TRM_ROW_INIT_UNIFORM: int
TRM_ROW_INIT_NORMAL: int
TRM_ADMIT_ALL: int
TRM_ADMIT_COUNT: int
TRM_ADMIT_BLOOM: int
TRM_ADMIT_PROBABILITY: int
TRM_CAP_LRU: int
TRM_CAP_LFU: int
TRM_PLACE_BY_HASH: int
TRM_PLACE_ROUND_ROBIN: int
TRM_PLACE_BY_SIZE: int
TRM_PARTITION_NONE: int
TRM_PARTITION_FIXED: int
TRM_PARTITION_MIN_SIZE: int
TRM_PARTITION_MAX_SIZE: int
TRM_PS_ASYNC: int
TRM_PS_BOUNDED: int
TRM_PS_SYNC: int
TRM_PS_CHIEF_STANDS_IN: int
TRM_PS_CHIEF_IS: int
TRM_DECAY_CONSTANT: int
TRM_DECAY_STEP: int
TRM_DECAY_COSINE: int
TRM_DECAY_POLYNOMIAL: int
TRM_DECAY_WSD: int
TRM_ELASTIC_BATCH_GLOBAL: int
TRM_ELASTIC_BATCH_RANK: int
TRM_WATCH_EVALUATION_LOSS: int
TRM_WATCH_TOP1: int
TRM_WATCH_LOSS: int
TRM_EVENT_STEP: int
TRM_EVENT_EPOCH: int
TRM_EVENT_EVALUATION: int
TRM_EVENT_CHECKPOINT: int
TRM_EVENT_MEMBERSHIP: int
TRM_MODE_TRAIN: int
TRM_MODE_EVAL: int
TRM_PS_LEND_AUTO: int
TRM_PS_LEND_ALWAYS: int
TRM_PS_LEND_NEVER: int
TRM_EXPORT_NONE: int
TRM_EXPORT_LATEST: int
TRM_EXPORT_BEST: int
TRM_EXPORT_FINAL: int
TRM_VERIFY_LOSS: int
TRM_VERIFY_FORWARD: int
TRM_VERIFY_GRADIENT: int
TRM_VERIFY_VARIABLE: int
TRM_VERIFY_KINDS: int
trm_log_sink: Any
trm_sample_read: Any
trm_sample_transform: Any
trm_lookup: Any
trm_launch_write: Any
trm_line_sink: Any
trm_ps_row_fn: Any
trm_network: Any
trm_loss: Any
trm_prediction_fn: Any
trm_hook: Any
trm_print: Any
trm_model_fn: Any
trm_input_fn: Any
trm_planner_profile: Any

class trm_error(Structure):
    status: int
    rank: int
    sys_errno: int
    line: int
    file: Any
    message: Any

class trm_shape(Structure):
    rank: int
    dim: int

class trm_tensor(Structure):
    data: Any
    dtype: int
    shape: trm_shape

class trm_optimizer_options(Structure):
    kind: int
    momentum: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    decoupled: bool
    decay_all: bool
    decay_biases: bool
    trust_coefficient: float
    initial_accumulator: float
    l1: float
    l2: float
    beta: float
    clip_norm: float

class trm_machine(Structure):
    cpu: Any
    isa: Any
    cores: int
    cores_online: int
    memory_bytes: int
    memory_free_bytes: int
    onednn: Any
    omp_threads: int
    huge_pages: Any
    shm_bytes: int
    shm_free_bytes: int
    cache: Any
    host: Any
    kernel: Any

class trm_shapes_options(Structure):
    train_count: int
    test_count: int
    seed: int

class trm_random_options(Structure):
    count: int
    channels: int
    height: int
    width: int
    classes: int
    channels_last: bool

class trm_batch_field(Structure):
    name: Optional[bytes]
    tensor: trm_tensor

class trm_data_source(Structure):
    samples: int
    classes: int
    field_count: int
    fields: trm_batch_field * 6
    read: trm_sample_read
    context: Any
    destroy: Any
    in_order: bool

class trm_transform(Structure):
    kind: int
    height: int
    width: int
    padding: int
    probability: float
    scale: float
    shift: float
    mean: Any
    std: Any
    area: Any
    ratio: Any
    align: int
    dtype: int
    exact: bool

class trm_batch(Structure):
    epoch: int
    index: int
    samples: int
    last: bool
    field_count: int
    fields: trm_batch_field * 6

class trm_dataset_spec(Structure):
    kind: Optional[bytes]
    path: Optional[bytes]
    usage: int
    batch_size: int
    image_size: int
    classes: int
    shard_count: int
    shard_index: int
    seed: int
    prefetch_depth: int
    threads: int
    channels_last: bool
    image_mean: Any
    image_std: Any
    augment: int
    fixed_recipe: bool
    click: Any
    text: Any
    shapes: Any

class trm_column(Structure):
    name: Optional[bytes]
    role: int
    last_chars: int

class trm_click_options(Structure):
    buckets: int
    vocabulary: Any
    shared_table: bool
    same_as: Any
    same_as_count: int
    hash_seed: int
    dense: int
    missing_dense: float
    label_threshold: float
    columns: Any
    column_count: int
    separator: Any
    bag_separator: Any
    bag_max: int
    header: int
    generator: Any

class trm_click_generator_options(Structure):
    rows: int
    test_rows: int
    fields: int
    dense: int
    vocabulary: int
    zipf: float
    click_rate: float
    key_scale: float
    dense_scale: float
    pair_scale: float
    wide_keys: bool
    shared_table: bool
    seed: int

class trm_click_random_options(Structure):
    count: int
    fields: int
    dense: int
    vocabulary: int
    zipf: float
    click_rate: float
    own_tables: bool
    seed: int
    threads: int

class trm_clicks_bayes(Structure):
    auc: float
    logloss: float
    click_rate: float
    realized_auc: float
    realized_logloss: float

class trm_tokenizer_options(Structure):
    vocabulary: int
    min_count: int
    special_tokens: Any
    special_count: int

class trm_tokens(Structure):
    ids: Any
    count: int
    capacity: int

class trm_text_options(Structure):
    tokenizer: Optional[bytes]
    tokens: Optional[bytes]
    text_field: Optional[bytes]
    context: int
    stride: int
    vocabulary: int
    masking: float
    documents: bool
    boundary_tokens: int
    mask_token: int

class trm_cluster_flags(Structure):
    rank: int
    size: int
    local_rank: int
    local_size: int
    job_name: Optional[bytes]
    task_index: Optional[bytes]
    ps_hosts: Optional[bytes]
    worker_hosts: Optional[bytes]
    chief_hosts: Optional[bytes]
    evaluator_hosts: Optional[bytes]
    rank_table: Optional[bytes]
    rendezvous: Optional[bytes]
    token_file: Optional[bytes]
    needs_ps: bool
    any_address: bool
    table_wait_seconds: float

class trm_cluster_info(Structure):
    source: Optional[bytes]
    rank: int
    size: int
    local_rank: int
    local_size: int
    device_id: int
    role: int
    task_index: int
    has_roles: bool
    is_chief: bool
    also_evaluates: bool
    sparse_workers: bool
    one_console: bool
    rank_later: bool
    model_dir: Optional[bytes]
    rendezvous: Optional[bytes]
    rendezvous_ports: int
    others_may_join: bool
    token_file: Optional[bytes]
    algorithm: Optional[bytes]
    warnings: Any
    warning_count: int

class trm_join_options(Structure):
    timeout_seconds: float
    heartbeat_seconds: float
    host_seconds: float
    stall_seconds: float
    host_name: Optional[bytes]
    insecure: bool

class trm_rank_entry(Structure):
    rank: int
    device_id: int
    server: int
    server_id: Optional[bytes]
    host: Optional[bytes]
    device_ip: Optional[bytes]

class trm_rank_table_host(Structure):
    host: Optional[bytes]
    devices: int
    device_ips: Any

class trm_launch_role(Structure):
    role: int
    count: int
    command: Any
    restarts: int

class trm_launch_options(Structure):
    ranks: int
    command: Any
    environment: Any
    extra: Any
    directory: Optional[bytes]
    rank_table: Optional[bytes]
    roles: Any
    role_count: int
    threads: int
    bind: int
    timeout_seconds: float
    grace_seconds: float
    drain_seconds: float
    elastic_least: int
    elastic_restarts: int
    dry_run: bool
    write: trm_launch_write
    context: Any

class trm_launch_result(Structure):
    exit_code: int
    failed_rank: int
    failed_role: int
    failed_signal: int
    failed_code: int
    seconds: float

class trm_collective(Structure):
    kind: int
    send: Any
    recv: Any
    count: int
    dtype: int
    reduce: int
    root: int
    counts: Any
    recv_counts: Any
    displacements: Any
    recv_displacements: Any
    tag: Optional[bytes]

class trm_comm_options(Structure):
    engine: Optional[bytes]
    plugin_dir: Optional[bytes]
    algorithm: Optional[bytes]
    deterministic: int
    timeout_seconds: float
    report_seconds: float
    staging_bytes: int
    spin_microseconds: int
    direct: int
    name: Optional[bytes]

class trm_message(Structure):
    receive: bool
    peer: int
    buffer: Any
    count: int
    dtype: int
    tag: Optional[bytes]

class trm_elastic_options(Structure):
    least: int
    most: int
    decision_seconds: float
    join: trm_join_options
    comm: trm_comm_options

class trm_membership(Structure):
    epoch: int
    rank: int
    ranks: int
    lost: Any
    left: Any
    joined: Any
    lost_count: int
    left_count: int
    joined_count: int
    seconds: float
    redone_steps: int
    spare_ranks: int
    restored_step: int
    stays: bool

class trm_node(Structure):
    id: int

class trm_graph_options(Structure):
    training: bool

class trm_conv_options(Structure):
    stride: int
    dilation: int
    pad: int
    groups: int

class trm_norm_options(Structure):
    epsilon: float
    momentum: float

class trm_attention_options(Structure):
    causal: bool
    scale: float

class trm_experts(Structure):
    router: trm_node
    up: trm_node
    gate: trm_node
    down: trm_node
    top_k: int
    normalize: int

class trm_pool_options(Structure):
    kernel: int
    stride: int
    pad: int
    count_padding: bool

class trm_xent_options(Structure):
    label_smoothing: float
    use_ignore_index: bool
    ignore_index: int
    bias: trm_node
    counted_share: float

class trm_custom_op(Structure):
    name: Optional[bytes]
    outputs: int
    infer: Any
    run: Any
    gradient: Any
    flops: Any
    context: Any

class trm_split_options(Structure):
    kind: int
    mesh: Optional[bytes]
    plan: Optional[bytes]
    search: Optional[bytes]
    trials: int
    trial_seconds: float
    measure_seconds: float
    save_plan: Optional[bytes]
    save_groups: Optional[bytes]
    input_cuts: Optional[bytes]
    replans: bool

class trm_pipeline_options(Structure):
    stages: int
    schedule: int
    chunks: int
    begins: Optional[bytes]

class trm_parallel_options(Structure):
    comm: Any
    stand_alone: bool
    batch: int
    pipeline: trm_pipeline_options
    split: trm_split_options
    sum: bool
    wire: int
    bucket: int
    bucket_bytes: int
    bucket_list: Any
    bucket_list_count: int
    shard_optimizer: bool
    cooperative: int
    sync_batch_norm: int
    layerwise: Any
    layerwise_count: int
    block: int
    broadcast: int

class trm_loss_scale_options(Structure):
    on: bool
    dynamic: bool
    initial: float
    grow_by: float
    shrink_by: float
    grow_every: int
    shrink_after: int

class trm_exec_options(Structure):
    precision: int
    optimizer: trm_optimizer_options
    threads: int
    seed: int
    loss_scale: trm_loss_scale_options
    memory_bytes: int
    accumulate: int
    recompute: bool
    parallel: trm_parallel_options
    backend: Optional[bytes]
    tuning_file: Optional[bytes]
    retune_seconds: float
    choices_file: Optional[bytes]
    fusion: int
    initialise: int
    share_slots: int
    host_processes: int
    loss: trm_node
    outputs: Any
    outputs_count: int
    parameters_of: Any
    keep_casts: bool
    updated_elsewhere: bool
    whole_gradients: bool
    blocks: int

class trm_loss_scale_state(Structure):
    scale: float
    good: int
    bad: int
    skipped: int
    overflow: bool

class trm_variable(Structure):
    name: Optional[bytes]
    kind: int
    dtype: int
    shape: trm_shape

class trm_parallel_info(Structure):
    rank: int
    size: int
    buckets: int
    bytes: int
    alpha: float
    bytes_per_second: float
    one_copy: bool
    casts: int
    predicted_end_seconds: float
    backward_end_seconds: float
    cooperative_bytes: int
    always_zero_bytes: int

class trm_searched_plan(Structure):
    searched: bool
    text: Any
    step_seconds: float
    data_parallel_step_seconds: float
    measured_step_seconds: float
    search_seconds: float

class trm_waiting(Structure):
    step_seconds: float
    communication_seconds: float
    imbalance_seconds: float
    meetings: int

class trm_exec_info(Structure):
    parameter_count: int
    parameter_bytes: int
    gradient_bytes: int
    slot_bytes: int
    activation_bytes: int
    other_bytes: int
    overhead_bytes: int
    total_bytes: int
    flops: float
    predicted_seconds: float
    create_seconds: float
    steps: int
    threads: int
    backend: Optional[bytes]

class trm_peak_memory(Structure):
    bytes: int
    bytes_per_second: Any

class trm_machine_peak(Structure):
    threads: int
    float32_flops: float
    bfloat16_flops: float
    memory: trm_peak_memory * 12
    memory_count: int

class trm_step_profile(Structure):
    name: Optional[bytes]
    kind: Optional[bytes]
    algorithm: Optional[bytes]
    phase: Optional[bytes]
    seconds: float
    flops: float
    bytes: float
    written_bytes: float
    first_bytes: float
    first_written_bytes: float
    work_flops: float
    work_float32: float
    bfloat16: bool
    reuse_bytes: float
    same: int
    first_same: int

class trm_profile_options(Structure):
    repeats: int
    beside: Any
    update: bool
    stop: Any

class trm_program_profile(Structure):
    steps: Any
    count: int
    seconds: float

class trm_context_option(Structure):
    name: Optional[bytes]
    alias: Optional[bytes]
    values: Optional[bytes]
    least: int
    most: int
    fallback: Optional[bytes]
    modes: Optional[bytes]
    meaning: Optional[bytes]

class trm_resnet_options(Structure):
    depth: int
    classes: int
    stem: int
    zero_init_residual: bool

class trm_lora_options(Structure):
    rank: int
    alpha: float
    dropout: float
    targets: Optional[bytes]

class trm_vit_options(Structure):
    layers: int
    width: int
    heads: int
    hidden: int
    patch: int
    dropout: float
    epsilon: float
    lora: trm_lora_options

class trm_language_options(Structure):
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    context: int
    vocabulary: int
    dropout: float
    epsilon: float
    rotary_theta: float
    untied: bool
    lazy_embedding: bool
    experts: int
    top_experts: int
    balance: float
    lora: trm_lora_options
    mask: trm_node
    masking: float

class trm_click_inputs(Structure):
    keys: trm_node
    offsets: trm_node
    values: trm_node
    dense: trm_node
    batch: int

class trm_field_table(Structure):
    name: Optional[bytes]
    fields: Any
    count: int
    rows: int
    width: int
    init: int

class trm_recommender_options(Structure):
    rows: int
    tables: Any
    tables_count: int
    width: int
    pooling: int
    hidden: Any
    hidden_count: int
    bottom: Any
    bottom_count: int
    cross_layers: int
    cross_rank: int
    stacked: bool
    wide_dense: int
    table_init: int
    layer_init: int

class trm_network_options(Structure):
    classes: int
    stem: int
    zero_init_residual: bool
    vit: trm_vit_options

class trm_generator_options(Structure):
    model: Optional[bytes]
    network: Any

class trm_sampling(Structure):
    temperature: float
    top_k: int
    top_p: float
    seed: int

class trm_named_tensor(Structure):
    name: Optional[bytes]
    tensor: trm_tensor

class trm_text_pair(Structure):
    key: Optional[bytes]
    value: Optional[bytes]

class trm_safetensors_entry(Structure):
    name: Optional[bytes]
    dtype: Optional[bytes]
    rank: int
    dims: Any
    offset: int
    bytes: int
    tensor: trm_tensor

class trm_checkpoint_info(Structure):
    global_step: int
    epoch: int
    data_position: int
    seed: int
    world_size: int
    config_json: Optional[bytes]
    state_json: Optional[bytes]
    sequence: int
    saved_unix_seconds: float
    path: Optional[bytes]
    skipped: int

class trm_checkpoint_part(Structure):
    name: Optional[bytes]
    tensors: Any
    count: int
    metadata: Any
    metadata_count: int
    read: Any
    read_context: Any

class trm_checkpoint_options(Structure):
    keep: int
    keep_every_hours: float
    background: bool
    lock_wait_seconds: float
    outwait_lock: bool
    outwait_seconds: float
    on_saved: Any
    on_saved_context: Any

class trm_checkpoint_open_options(Structure):
    mark_in_use: bool

class trm_named_scalar(Structure):
    name: Optional[bytes]
    value: float

class trm_events_options(Structure):
    resumed: bool
    resume_step: int

class trm_graph_event_node(Structure):
    name: Optional[bytes]
    op: Optional[bytes]
    inputs: Any
    input_count: int
    device: Optional[bytes]
    output_shape: Any

class trm_metrics_options(Structure):
    columns: Any
    column_count: int
    resumed: bool
    resume_step: int

class trm_npz_entry(Structure):
    name: Optional[bytes]
    descr: Optional[bytes]
    fortran_order: bool
    rank: int
    dims: Any
    offset: int
    bytes: int
    tensor: trm_tensor

class trm_probe(Structure):
    path: Optional[bytes]
    is_directory: bool
    data: Any
    bytes: int

class trm_recogniser(Structure):
    kind: Optional[bytes]
    name_hint: Optional[bytes]
    matches: Any
    describe: Any

class trm_inspect_options(Structure):
    json: bool
    more: Any
    more_count: int
    other_kinds: Optional[bytes]

class trm_huggingface_options(Structure):
    model: Optional[bytes]
    network: Any
    vit: Any
    tokenizer: Any
    shard_bytes: int
    merge: bool
    image_mean: Any
    image_std: Any

class trm_row_init(Structure):
    kind: int
    value: float
    scale: float
    stream: int

class trm_admission(Structure):
    kind: int
    min_count: int
    capacity: int
    probability: float

class trm_expiry(Structure):
    after_seconds: float
    after_ticks: int
    min_score: float
    score_decay: float
    max_rows: int
    cap: int
    min_norm: float

class trm_placement(Structure):
    kind: int
    parts: int
    first: int
    rows: int
    begin: float
    end: float

class trm_ps_source(Structure):
    read: Any
    context: Any

class trm_table_options(Structure):
    name: Optional[bytes]
    width: int
    dtype: int
    round_to_nearest: bool
    staleness: int
    seed: int
    learning_rate: float
    optimizer: trm_optimizer_options
    init: trm_row_init
    admission: trm_admission
    expiry: trm_expiry
    placement: trm_placement

class trm_partition(Structure):
    kind: int
    max_parts: int
    part_bytes: int

class trm_ps_variable(Structure):
    rows: int
    row_bytes: int

class trm_table_stats(Structure):
    rows: int
    spilled_rows: int
    bytes: int
    reads: int
    read_misses: int
    updates: int
    created: int
    refused: int
    expired: int
    evicted: int
    spilled: int
    unspilled: int
    no_room: int
    lags: int
    lag_sum: int
    admission_level: int

class trm_row_info(Structure):
    key: int
    last_tick: int
    last_time: int
    count: int
    version: int
    score: float
    spilled: bool

class trm_bags(Structure):
    pooling: int
    rows: Any
    weights: Any
    offsets: Any
    count: int
    width: int

class trm_ps_server_options(Structure):
    server: int
    servers: int
    shards: int
    memory_bytes: int
    listen: Optional[bytes]
    folder: Optional[bytes]
    log_pushes: int
    log_sync: bool
    spill_folder: Optional[bytes]
    spill_bytes: int
    mode: int
    workers: int
    staleness: int
    backup_workers: int
    sum_gradients: bool
    staleness_aware: bool
    initial: trm_ps_source
    worker_timeout_seconds: float
    token: Any
    job_id: Any
    job_origin: Optional[bytes]

class trm_ps_client_options(Structure):
    addresses: Any
    local: Any
    servers: int
    worker: int
    wire: int
    pushes_ahead: int
    cache_rows: int
    cache_staleness: int
    ring_bytes: int
    tcp_only: bool
    timeout_seconds: float
    retry_seconds: float
    token: Any
    job_id: Any
    job_origin: Optional[bytes]
    stopped: Any
    lost: Any
    over: Any
    context: Any

class trm_ps_lease(Structure):
    id: int
    epoch: int
    begin: int
    end: int

class trm_ps_push_options(Structure):
    rate_scale: float
    lease: trm_ps_lease
    position: int

class trm_ps_lease_options(Structure):
    samples: int
    lease_samples: int
    epochs: int
    timeout_seconds: float
    samples_max: int
    batch: int

class trm_ps_client_stats(Structure):
    lookups: int
    unique_keys: int
    cached_keys: int
    pushes: int
    resent: int
    repeated: int
    reconnects: int
    bytes_sent: int
    bytes_received: int
    global_step: int

class trm_ps_worker(Structure):
    worker: int
    incarnation: int
    batches: int
    active: bool
    silent_seconds: float

class trm_ps_chief(Structure):
    mine: bool
    worker: int
    silent_seconds: float
    lease_seconds: float

class trm_ps_checkpoint_result(Structure):
    snapshot: int
    differential: bool
    rows: int
    bytes: int
    seconds: float
    hold_seconds: float

class trm_ps_folder_options(Structure):
    snapshot: int
    logs: int
    table: Optional[bytes]
    key: Any
    initial: trm_ps_source

class trm_ps_folder_info(Structure):
    snapshot: int
    differential: bool
    servers: int
    shards: int
    tables: int
    global_step: int
    logged: int

class trm_ps_writer(Structure):
    worker: int
    incarnation: int
    sequence: int
    tick: int
    time: int

class trm_learning_rate(Structure):
    decay: int
    base: float
    end: float
    gamma: float
    every_steps: int
    power: float
    warmup_steps: int
    warmup_start: float
    total_steps: int

class trm_metric(Structure):
    name: Optional[bytes]
    sum_count: int
    add: Any
    value: Any
    context: Any

class trm_ps_training(Structure):
    client: Any
    tables_only: bool
    lease_batches: int
    lease_seconds: float
    cache_rows: int
    prefetch: int
    placement: int
    partition: trm_partition
    table: Any
    context: Any

class trm_model_options(Structure):
    network: trm_network
    network_context: Any
    loss: trm_loss
    loss_context: Any
    data: Any
    learning_rate: trm_learning_rate
    exec: trm_exec_options
    ps: trm_ps_training
    context: Any
    metrics: trm_metric * 8
    evaluation_only: bool
    accept_changes: bool
    description: Optional[bytes]
    elastic: Any
    elastic_batch: int

class trm_evaluation(Structure):
    loss: float
    samples: int
    seconds: float
    has_top: bool
    top1: float
    top5: float
    has_auc: bool
    auc: float
    logloss: float
    calibration: float
    has_tokens: bool
    tokens: int
    perplexity: float
    bits_per_byte: float
    has_accuracy: bool
    accuracy: float
    metric_count: int
    metrics: trm_named_scalar * 8

class trm_progress(Structure):
    model: Any
    epoch: int
    epochs: int
    step: int
    epoch_steps: int
    global_step: int
    loss: float
    learning_rate: float
    loss_scale: Any
    step_samples: int
    epoch_samples: int
    samples: int
    step_seconds: float
    wait_seconds: float
    epoch_seconds: float
    seconds: float
    busy_seconds: float
    data_seconds: float
    evaluation: Any
    checkpoint: Optional[bytes]
    membership: Any
    stopping: bool

class trm_callback(Structure):
    on_begin: trm_hook
    on_epoch_begin: trm_hook
    on_gradients: trm_hook
    on_step_end: trm_hook
    on_epoch_end: trm_hook
    on_evaluated: trm_hook
    on_checkpoint: trm_hook
    on_membership: trm_hook
    on_end: trm_hook
    destroy: Any
    context: Any
    last: bool
    together: Optional[bytes]

class trm_train_options(Structure):
    data: Any
    until_epoch: int
    until_step: int
    sink: bool
    profile: Optional[bytes]
    callbacks: trm_callback * 16

class trm_model_checkpoint_options(Structure):
    directory: Optional[bytes]
    every_steps: int
    every_seconds: float
    every_epochs: int
    writer: trm_checkpoint_options

class trm_early_stop_options(Structure):
    watch: int
    patience: int
    min_delta: float

class trm_report_mark(Structure):
    step: int
    samples: int
    membership_epoch: int
    seconds: float
    data_seconds: float
    rank_seconds: float

class trm_mean_step(Structure):
    step_seconds: float
    data_wait_seconds: float
    rank_wait_seconds: float
    samples_per_second: float

class trm_tensorboard_options(Structure):
    directory: Optional[bytes]
    every_steps: int
    histogram_epochs: int
    graph: bool

class trm_input_context(Structure):
    mode: int
    pipelines: int
    index: int
    seed: int

class trm_ps_strategy(Structure):
    lend: int
    server: trm_ps_server_options
    client: trm_ps_client_options
    training: trm_ps_training

class trm_run_config(Structure):
    model_dir: Optional[bytes]
    warm_start_from: Optional[bytes]
    cluster: Any
    distribute: Any
    token: Any
    tf_random_seed: int
    save_summary_steps: int
    checkpoints: trm_model_checkpoint_options
    log_step_count_steps: int
    iterations_per_loop: int
    precision_mode: Optional[bytes]
    session_creation_timeout_secs: float
    export_bytes: int
    print: trm_print
    on_evaluated: Any
    context: Any

class trm_train_spec(Structure):
    input_fn: trm_input_fn
    params: Any
    max_steps: int
    epochs: int
    callbacks: trm_callback * 12

class trm_exporter(Structure):
    kind: int
    name: Optional[bytes]
    format: Optional[bytes]
    metric: Optional[bytes]
    exports_to_keep: int

class trm_eval_spec(Structure):
    input_fn: trm_input_fn
    params: Any
    steps: int
    name: Optional[bytes]
    start_delay_secs: float
    throttle_secs: float
    exporters: trm_exporter * 8

class trm_job_result(Structure):
    role: int
    global_step: int
    has_evaluation: bool
    evaluation: trm_evaluation
    evaluated_step: int
    least_updates: int
    most_updates: int
    lookups: int
    unique_keys: int
    cached_keys: int

class trm_top_k(Structure):
    hits: int
    samples: int

class trm_auc_values(Structure):
    auc: float
    logloss: float
    calibration: float
    samples: int
    nans: int

class trm_planner_options(Structure):
    ranks: int
    hosts: int
    links: Optional[bytes]
    own_devices: bool
    guess_links: bool
    measure: int
    frontier: int
    measure_seconds: float
    refresh: bool
    extra_candidates: int
    remeasures: bool
    stages: int
    micro_batches: int
    chunks: int
    schedule: Optional[bytes]
    stage_begins: Optional[bytes]
    stages_gain: float
    deterministic: int
    stop: Any

class trm_planner_info(Structure):
    mesh: Any
    ranks: int
    infeasible: bool
    step_seconds: float
    samples_per_second: float
    memory_bytes: float
    compiled_bytes: float
    lower_bound: float
    gap: float
    solve_seconds: float
    search_seconds: float
    total_seconds: float
    data_parallel_seconds: float
    tried: int
    tried_within: float
    meshes: int
    operators: int
    measured: int
    measurements: int
    stages: int
    micro_batches: int
    chunks: int

class trm_planner_candidate(Structure):
    name: Optional[bytes]
    step_seconds: float
    first_seconds: float
    bytes: float

class trm_plan_info(Structure):
    mesh: Any
    ranks: int
    graph: int
    operators: int
    cut: int
    pinned: int
    stores: int
    stages: int
    chunks: int
    micro_batches: int
    schedule: int
    recompute: bool
    begins: Any

class trm_simulation_options(Structure):
    largest: int
    straggler: float
    json: bool
    trace: Optional[bytes]

class trm_planner_run_result(Structure):
    seconds: float
    median_seconds: float
    parameter_bytes: int
    gradient_bytes: int
    slot_bytes: int
    activation_bytes: int
    total_bytes: int
    resident_bytes: int
    loss: float

class trm_planner_run_options(Structure):
    plan: Optional[bytes]
    steps: int
    profile: trm_planner_profile
    context: Any

class trm_planner_comparison(Structure):
    turns: int
    fastest: int
    seconds: Any
    ahead: Any
    resolution: Any

class trm_planner_compare_options(Structure):
    plans: Any
    count: int
    steps: int
    seconds: float

class trm_hardware_plan_options(Structure):
    model: Optional[bytes]
    preset: Optional[bytes]
    sizes: trm_language_options
    hardware: Optional[bytes]
    hardware_name: Optional[bytes]
    devices: int
    batch: int
    context: int
    products: Optional[bytes]
    memory_bytes: float
    narrow_gradients: bool
    whole_optimizer: bool
    plan: Optional[bytes]

class trm_hardware_plan_info(Structure):
    fits: bool
    step_seconds: float
    tokens_per_second: float
    utilisation: float
    memory_bytes: float
    priced: float
    search_seconds: float
    given_seconds: float

class trm_verify_options(Structure):
    steps: int
    tolerance: float
    factor: float
    bitwise: bool

class trm_verify_tensor(Structure):
    kind: int
    name: Optional[bytes]
    count: int
    error: float
    largest: float
    rounding: float
    same_bits: bool
    agrees: bool

class trm_verification(Structure):
    tensors: Any
    count: int
    agrees: bool
    same_bits: bool
    chaos: float

def trm_status_name(status: Any) -> Optional[bytes]: ...
def trm_status_text(status: Any) -> Optional[bytes]: ...
def trm_status_exit_code(status: Any) -> int: ...
def trm_error_exit(err: Any) -> None: ...
def trm_free(memory: Any) -> None: ...
def trm_dtype_bytes(dtype: Any) -> int: ...
def trm_dtype_name(dtype: Any) -> Optional[bytes]: ...
def trm_shape_make(rank: Any, dim: Any) -> trm_shape: ...
def trm_shape_count(shape: Any) -> int: ...
def trm_shape_equal(a: Any, b: Any) -> bool: ...
def trm_shape_format(shape: Any, text: Any, size: Any) -> Optional[bytes]: ...
def trm_tensor_bytes(tensor: Any) -> int: ...
def trm_log_set_sink(sink: Any, context: Any, most_verbose: Any) -> None: ...
def trm_version() -> Optional[bytes]: ...
def trm_nearest_word(word: Any, words: Any, count: Any) -> Optional[bytes]: ...
def trm_machine_get(out: Any) -> None: ...
def trm_peak_bytes() -> int: ...
def trm_resident_bytes() -> int: ...
def trm_shared_bytes() -> int: ...
def trm_now_seconds() -> float: ...
def trm_dataset_cifar10(path: Any, usage: Any, out: Any, err: Any) -> int: ...
def trm_dataset_shapes(options: Any, usage: Any, out: Any, err: Any) -> int: ...
def trm_shapes_write(options: Any, path: Any, err: Any) -> int: ...
def trm_dataset_random(options: Any, out: Any, err: Any) -> int: ...
def trm_dataset_image_folder(path: Any, usage: Any, out: Any, err: Any) -> int: ...
def trm_dataset_tfrecord_imagenet(path: Any, usage: Any, out: Any, err: Any) -> int: ...
def trm_dataset_callback(source: Any, out: Any, err: Any) -> int: ...
def trm_dataset_arrays(arrays: Any, count: Any, classes: Any, out: Any, err: Any) -> int: ...
def trm_dataset_destroy(dataset: Any) -> None: ...
def trm_transform_decode(exact: Any) -> trm_transform: ...
def trm_transform_random_crop(height: Any, width: Any, padding: Any) -> trm_transform: ...
def trm_transform_random_resized_crop(height: Any, width: Any) -> trm_transform: ...
def trm_transform_center_crop(height: Any, width: Any) -> trm_transform: ...
def trm_transform_random_flip(probability: Any) -> trm_transform: ...
def trm_transform_resize(height: Any, width: Any, align: Any) -> trm_transform: ...
def trm_transform_resize_shorter(size: Any, align: Any) -> trm_transform: ...
def trm_transform_rescale(scale: Any, shift: Any) -> trm_transform: ...
def trm_transform_normalize(mean: Any, std: Any) -> trm_transform: ...
def trm_transform_hwc2chw() -> trm_transform: ...
def trm_transform_type_cast(dtype: Any) -> trm_transform: ...
def trm_dataset_seed(dataset: Any, seed: Any, err: Any) -> int: ...
def trm_dataset_shard(dataset: Any, count: Any, index: Any, mode: Any, err: Any) -> int: ...
def trm_dataset_shuffle(dataset: Any, window: Any, err: Any) -> int: ...
def trm_dataset_map(dataset: Any, transforms: Any, count: Any, err: Any) -> int: ...
def trm_dataset_transform(dataset: Any, transform: Any, context: Any, err: Any) -> int: ...
def trm_dataset_batch(dataset: Any, size: Any, drop_remainder: Any, err: Any) -> int: ...
def trm_dataset_repeat(dataset: Any, passes: Any, err: Any) -> int: ...
def trm_dataset_prefetch(dataset: Any, depth: Any, threads: Any, err: Any) -> int: ...
def trm_dataset_next(dataset: Any, out: Any, err: Any) -> int: ...
def trm_batch_tensor(batch: Any, name: Any) -> Any: ...
def trm_dataset_position(dataset: Any, epoch: Any, batch_index: Any) -> None: ...
def trm_dataset_seek(dataset: Any, epoch: Any, batch_index: Any, err: Any) -> int: ...
def trm_dataset_check(dataset: Any, err: Any) -> int: ...
def trm_dataset_epoch_batches(dataset: Any) -> int: ...
def trm_dataset_sample_count(dataset: Any) -> int: ...
def trm_dataset_class_count(dataset: Any) -> int: ...
def trm_dataset_field(dataset: Any, index: Any, out: Any) -> bool: ...
def trm_dataset_buffer_bytes(dataset: Any) -> int: ...
def trm_dataset_json(dataset: Any) -> Any: ...
def trm_dataset_open(spec: Any, out: Any, err: Any) -> int: ...
def trm_dataset_click_file(kind: Any, path: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_vocabulary_build(kind: Any, path: Any, options: Any, min_count: Any, out: Any, err: Any) -> int: ...
def trm_vocabulary_destroy(vocabulary: Any) -> None: ...
def trm_vocabulary_save(vocabulary: Any, path: Any, err: Any) -> int: ...
def trm_vocabulary_load(path: Any, out: Any, err: Any) -> int: ...
def trm_vocabulary_fields(vocabulary: Any) -> int: ...
def trm_vocabulary_rows(vocabulary: Any, field: Any) -> int: ...
def trm_dataset_clicks(options: Any, usage: Any, out: Any, err: Any) -> int: ...
def trm_dataset_random_clicks(options: Any, out: Any, err: Any) -> int: ...
def trm_clicks_measure(options: Any, rows: Any, out: Any, err: Any) -> int: ...
def trm_tokenizer_train(paths: Any, count: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_tokenizer_open(path: Any, out: Any, err: Any) -> int: ...
def trm_tokenizer_bytes(out: Any, err: Any) -> int: ...
def trm_tokenizer_characters(text: Any, bytes: Any, out: Any, err: Any) -> int: ...
def trm_tokenizer_save(tokenizer: Any, folder: Any, err: Any) -> int: ...
def trm_tokenizer_destroy(tokenizer: Any) -> None: ...
def trm_tokenizer_vocabulary(tokenizer: Any) -> int: ...
def trm_tokenizer_find(tokenizer: Any, token: Any) -> int: ...
def trm_tokenizer_begin(tokenizer: Any) -> int: ...
def trm_tokenizer_end(tokenizer: Any) -> int: ...
def trm_tokens_free(tokens: Any) -> None: ...
def trm_tokenizer_encode(tokenizer: Any, text: Any, bytes: Any, tokens: Any, err: Any) -> int: ...
def trm_tokenizer_decode(tokenizer: Any, ids: Any, count: Any, out: Any, bytes: Any, err: Any) -> int: ...
def trm_tokens_write(tokens: Any, path: Any, err: Any) -> int: ...
def trm_tokens_read(path: Any, tokens: Any, err: Any) -> int: ...
def trm_dataset_tokens(path: Any, usage: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_dataset_text(path: Any, usage: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_dataset_json_lines(path: Any, usage: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_dataset_tokenizer(dataset: Any) -> Any: ...
def trm_role_name(role: Any) -> Optional[bytes]: ...
def trm_cluster_from_env(flags: Any, lookup: Any, context: Any, out: Any, err: Any) -> int: ...
def trm_cluster_create(flags: Any, out: Any, err: Any) -> int: ...
def trm_cluster_destroy(cluster: Any) -> None: ...
def trm_cluster_get(cluster: Any) -> Any: ...
def trm_cluster_task_count(cluster: Any, role: Any) -> int: ...
def trm_cluster_task_address(cluster: Any, role: Any, index: Any) -> Optional[bytes]: ...
def trm_cluster_beyond_loopback(cluster: Any) -> bool: ...
def trm_cluster_text(cluster: Any, json: Any, out: Any, err: Any) -> int: ...
def trm_cluster_join(cluster: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_cluster_leave(bootstrap: Any) -> None: ...
def trm_rank_table_read(path: Any, out: Any, err: Any) -> int: ...
def trm_rank_table_destroy(table: Any) -> None: ...
def trm_rank_table_size(table: Any) -> int: ...
def trm_rank_table_entry(table: Any, rank: Any) -> trm_rank_entry: ...
def trm_rank_table_text(table: Any, json: Any, out: Any, err: Any) -> int: ...
def trm_rank_table_make(hosts: Any, count: Any, form: Any, json: Any, err: Any) -> int: ...
def trm_hccn_conf_read(path: Any, ips: Any, count: Any, err: Any) -> int: ...
def trm_rank_table_merge(paths: Any, count: Any, json: Any, err: Any) -> int: ...
def trm_token_share(path: Any, token: Any, err: Any) -> int: ...
def trm_token_read(path: Any, token: Any, err: Any) -> int: ...
def trm_launch(options: Any, result: Any, err: Any) -> int: ...
def trm_reduction_name(reduce: Any) -> Optional[bytes]: ...
def trm_collective_name(kind: Any) -> Optional[bytes]: ...
def trm_comm_check(options: Any, err: Any) -> int: ...
def trm_comm_create(bootstrap: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_comm_destroy(comm: Any) -> None: ...
def trm_comm_rank(comm: Any) -> int: ...
def trm_comm_size(comm: Any) -> int: ...
def trm_comm_local_rank(comm: Any) -> int: ...
def trm_comm_local_size(comm: Any) -> int: ...
def trm_comm_deterministic(comm: Any) -> int: ...
def trm_comm_engine(comm: Any) -> Optional[bytes]: ...
def trm_comm_split(comm: Any, colour: Any, key: Any, out: Any, err: Any) -> int: ...
def trm_comm_alloc_shared(comm: Any, bytes: Any, err: Any) -> Any: ...
def trm_comm_free_shared(comm: Any, memory: Any) -> None: ...
def trm_comm_keep_shared(comm: Any, memory: Any) -> int: ...
def trm_comm_run(comm: Any, op: Any, err: Any) -> int: ...
def trm_comm_start(comm: Any, op: Any, request: Any, err: Any) -> int: ...
def trm_comm_allreduce(comm: Any, buffer: Any, count: Any, dtype: Any, reduce: Any, err: Any) -> int: ...
def trm_comm_broadcast(comm: Any, buffer: Any, count: Any, dtype: Any, root: Any, err: Any) -> int: ...
def trm_comm_barrier(comm: Any, err: Any) -> int: ...
def trm_comm_exchange(comm: Any, messages: Any, count: Any, err: Any) -> int: ...
def trm_comm_start_exchange(comm: Any, messages: Any, count: Any, request: Any, err: Any) -> int: ...
def trm_comm_send(comm: Any, buffer: Any, count: Any, dtype: Any, peer: Any, err: Any) -> int: ...
def trm_comm_recv(comm: Any, buffer: Any, count: Any, dtype: Any, peer: Any, err: Any) -> int: ...
def trm_request_wait(request: Any, timeout_seconds: Any, err: Any) -> int: ...
def trm_request_test(request: Any) -> bool: ...
def trm_comm_health(comm: Any, err: Any) -> int: ...
def trm_comm_abort(comm: Any, cause: Any) -> None: ...
def trm_elastic_create(cluster: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_elastic_destroy(elastic: Any) -> None: ...
def trm_elastic_comm(elastic: Any) -> Any: ...
def trm_elastic_get_membership(elastic: Any, out: Any) -> None: ...
def trm_elastic_can_recover(status: Any) -> bool: ...
def trm_elastic_request_leave(elastic: Any) -> None: ...
def trm_elastic_wants_change(elastic: Any) -> bool: ...
def trm_elastic_recover(elastic: Any, cause: Any, err: Any) -> int: ...
def trm_join(err: Any) -> int: ...
def trm_distribute_begin(flags: Any, out: Any, err: Any) -> int: ...
def trm_distribute_over(comm: Any, out: Any, err: Any) -> int: ...
def trm_distribute_end(ranks: Any) -> None: ...
def trm_distribute_rank(ranks: Any) -> int: ...
def trm_distribute_size(ranks: Any) -> int: ...
def trm_distribute_comm(ranks: Any, out: Any, err: Any) -> int: ...
def trm_distribute_broadcast(ranks: Any, values: Any, count: Any, root: Any, err: Any) -> int: ...
def trm_distribute_all_reduce(ranks: Any, values: Any, count: Any, reduce: Any, err: Any) -> int: ...
def trm_distribute_shard_and_rebatch(ranks: Any, dataset: Any, global_batch: Any, local_batch: Any, err: Any) -> int: ...
def trm_distribute_shard_arrays(ranks: Any, arrays: Any, count: Any, samples: Any, batch: Any, err: Any) -> int: ...
def trm_graph_create(options: Any, out: Any, err: Any) -> int: ...
def trm_graph_destroy(graph: Any) -> None: ...
def trm_graph_check(graph: Any, err: Any) -> int: ...
def trm_graph_is_training(graph: Any) -> bool: ...
def trm_graph_push_scope(graph: Any, format: Any, *arguments: Any) -> None: ...
def trm_graph_pop_scope(graph: Any) -> None: ...
def trm_graph_mark_segment(graph: Any) -> None: ...
def trm_node_shape(graph: Any, node: Any) -> trm_shape: ...
def trm_node_dtype(graph: Any, node: Any) -> int: ...
def trm_graph_to_string(graph: Any) -> Any: ...
def trm_init_normal(deviation: Any) -> int: ...
def trm_input(graph: Any, name: Any, dtype: Any, shape: Any) -> trm_node: ...
def trm_parameter(graph: Any, name: Any, shape: Any, init: Any) -> trm_node: ...
def trm_exclude_from_decay(graph: Any, parameter: Any) -> trm_node: ...
def trm_freeze(graph: Any, parameter: Any) -> trm_node: ...
def trm_update_all_rows(graph: Any, parameter: Any) -> trm_node: ...
def trm_state(graph: Any, name: Any, dtype: Any, shape: Any, init: Any) -> trm_node: ...
def trm_constant(graph: Any, tensor: Any) -> trm_node: ...
def trm_scalar(graph: Any, value: Any) -> trm_node: ...
def trm_conv2d(graph: Any, x: Any, weight: Any, bias: Any, options: Any) -> trm_node: ...
def trm_linear(graph: Any, x: Any, weight: Any, bias: Any) -> trm_node: ...
def trm_linear_by_inputs(graph: Any, x: Any, weight: Any, bias: Any) -> trm_node: ...
def trm_matmul(graph: Any, a: Any, b: Any, transpose_a: Any, transpose_b: Any) -> trm_node: ...
def trm_batch_norm(graph: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_variance: Any, options: Any) -> trm_node: ...
def trm_layer_norm(graph: Any, x: Any, gamma: Any, beta: Any, epsilon: Any) -> trm_node: ...
def trm_rms_norm(graph: Any, x: Any, gamma: Any, epsilon: Any) -> trm_node: ...
def trm_attention(graph: Any, q: Any, k: Any, v: Any, mask: Any, options: Any) -> trm_node: ...
def trm_attention_packed(graph: Any, qkv: Any, heads: Any, kv_heads: Any, mask: Any, options: Any) -> trm_node: ...
def trm_rotary(graph: Any, x: Any, theta: Any, first_position: Any) -> trm_node: ...
def trm_top_values(graph: Any, x: Any, k: Any, columns: Any) -> trm_node: ...
def trm_expert_linear(graph: Any, x: Any, weights: Any, experts: Any) -> trm_node: ...
def trm_mixture_of_experts(graph: Any, x: Any, experts: Any, load_balance: Any) -> trm_node: ...
def trm_max_pool(graph: Any, x: Any, options: Any) -> trm_node: ...
def trm_avg_pool(graph: Any, x: Any, options: Any) -> trm_node: ...
def trm_global_avg_pool(graph: Any, x: Any) -> trm_node: ...
def trm_embedding(graph: Any, table: Any, ids: Any) -> trm_node: ...
def trm_bag_pool(graph: Any, rows: Any, offsets: Any, weights: Any, pooling: Any) -> trm_node: ...
def trm_pair_dots(graph: Any, x: Any) -> trm_node: ...
def trm_dropout(graph: Any, x: Any, rate: Any) -> trm_node: ...
def trm_add(graph: Any, a: Any, b: Any) -> trm_node: ...
def trm_sub(graph: Any, a: Any, b: Any) -> trm_node: ...
def trm_mul(graph: Any, a: Any, b: Any) -> trm_node: ...
def trm_div(graph: Any, a: Any, b: Any) -> trm_node: ...
def trm_relu(graph: Any, x: Any) -> trm_node: ...
def trm_sigmoid(graph: Any, x: Any) -> trm_node: ...
def trm_tanh(graph: Any, x: Any) -> trm_node: ...
def trm_gelu(graph: Any, x: Any, form: Any) -> trm_node: ...
def trm_silu(graph: Any, x: Any) -> trm_node: ...
def trm_swiglu(graph: Any, gate: Any, up: Any) -> trm_node: ...
def trm_exp(graph: Any, x: Any) -> trm_node: ...
def trm_log(graph: Any, x: Any) -> trm_node: ...
def trm_sqrt(graph: Any, x: Any) -> trm_node: ...
def trm_power(graph: Any, x: Any, power: Any) -> trm_node: ...
def trm_neg(graph: Any, x: Any) -> trm_node: ...
def trm_scale(graph: Any, x: Any, factor: Any) -> trm_node: ...
def trm_cast(graph: Any, x: Any, dtype: Any) -> trm_node: ...
def trm_reshape(graph: Any, x: Any, shape: Any) -> trm_node: ...
def trm_transpose(graph: Any, x: Any, order: Any) -> trm_node: ...
def trm_concat(graph: Any, nodes: Any, count: Any, axis: Any) -> trm_node: ...
def trm_slice(graph: Any, x: Any, begin: Any, size: Any) -> trm_node: ...
def trm_pad(graph: Any, x: Any, before: Any, after: Any, value: Any) -> trm_node: ...
def trm_one_hot(graph: Any, labels: Any, classes: Any, on: Any, off: Any) -> trm_node: ...
def trm_reduce_sum(graph: Any, x: Any, axes: Any, count: Any, keep_dims: Any) -> trm_node: ...
def trm_reduce_mean(graph: Any, x: Any, axes: Any, count: Any, keep_dims: Any) -> trm_node: ...
def trm_reduce_max(graph: Any, x: Any, axes: Any, count: Any, keep_dims: Any) -> trm_node: ...
def trm_softmax(graph: Any, x: Any) -> trm_node: ...
def trm_softmax_cross_entropy(graph: Any, logits: Any, labels: Any, options: Any) -> trm_node: ...
def trm_linear_cross_entropy(graph: Any, x: Any, weight: Any, labels: Any, options: Any) -> trm_node: ...
def trm_bce_with_logits(graph: Any, logits: Any, targets: Any) -> trm_node: ...
def trm_custom(graph: Any, op: Any, inputs: Any, count: Any, outputs: Any) -> None: ...
def trm_gradients(graph: Any, loss: Any, nodes: Any, count: Any, grads: Any) -> None: ...
def trm_exec_create(graph: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_exec_destroy(exec: Any) -> None: ...
def trm_exec_input(exec: Any, name: Any, out: Any, err: Any) -> int: ...
def trm_exec_feed(exec: Any, name: Any, tensor: Any, err: Any) -> int: ...
def trm_exec_forward(exec: Any, err: Any) -> int: ...
def trm_exec_forward_backward(exec: Any, err: Any) -> int: ...
def trm_exec_update(exec: Any, learning_rate: Any, err: Any) -> int: ...
def trm_exec_get_loss_scale(exec: Any, out: Any) -> bool: ...
def trm_exec_set_loss_scale(exec: Any, state: Any, err: Any) -> int: ...
def trm_exec_loss(exec: Any) -> float: ...
def trm_exec_output(exec: Any, index: Any, out: Any, err: Any) -> int: ...
def trm_exec_variable_count(exec: Any) -> int: ...
def trm_exec_variable(exec: Any, index: Any) -> trm_variable: ...
def trm_exec_find(exec: Any, name: Any) -> int: ...
def trm_exec_read(exec: Any, index: Any, data: Any) -> None: ...
def trm_exec_write(exec: Any, index: Any, data: Any) -> None: ...
def trm_exec_gradient(exec: Any, index: Any, data: Any, err: Any) -> int: ...
def trm_exec_ranges(exec: Any, parameters: Any, gradients: Any, count: Any) -> None: ...
def trm_exec_broadcast(exec: Any, err: Any) -> int: ...
def trm_exec_gather(exec: Any, err: Any) -> int: ...
def trm_exec_get_parallel_info(exec: Any, out: Any) -> None: ...
def trm_exec_get_searched_plan(exec: Any, out: Any) -> None: ...
def trm_exec_waiting_seconds(exec: Any) -> float: ...
def trm_exec_begin_waiting(exec: Any) -> None: ...
def trm_exec_get_waiting(exec: Any, out: Any, err: Any) -> int: ...
def trm_exec_step(exec: Any) -> int: ...
def trm_exec_set_step(exec: Any, step: Any) -> None: ...
def trm_exec_get_info(exec: Any, out: Any) -> None: ...
def trm_exec_explain(exec: Any, json: Any) -> Any: ...
def trm_meter_create(threads: Any, out: Any, err: Any) -> int: ...
def trm_meter_destroy(meter: Any) -> None: ...
def trm_meter_sample(meter: Any) -> None: ...
def trm_meter_get_peaks(meter: Any, median: Any, best: Any) -> None: ...
def trm_machine_memory_seconds(peak: Any, bytes: Any, written: Any, held: Any) -> float: ...
def trm_exec_profile(exec: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_context_create(out: Any, err: Any) -> int: ...
def trm_context_destroy(context: Any) -> None: ...
def trm_context_set(context: Any, name: Any, value: Any, err: Any) -> int: ...
def trm_context_get(context: Any, name: Any) -> Optional[bytes]: ...
def trm_context_is_set(context: Any, name: Any) -> bool: ...
def trm_context_reset(context: Any) -> None: ...
def trm_context_own_samples(context: Any, ranks: Any) -> bool: ...
def trm_context_check(context: Any, err: Any) -> int: ...
def trm_context_resolve(context: Any, comm: Any, parallel: Any, accumulate: Any, err: Any) -> int: ...
def trm_context_option_at(index: Any, out: Any) -> bool: ...
def trm_resnet(graph: Any, image: Any, options: Any) -> trm_node: ...
def trm_mlp(graph: Any, x: Any, hidden: Any, count: Any, classes: Any) -> trm_node: ...
def trm_lenet(graph: Any, image: Any, classes: Any) -> trm_node: ...
def trm_vit_size(size: Any, options: Any, err: Any) -> int: ...
def trm_vit_complete(options: Any) -> None: ...
def trm_vit(graph: Any, image: Any, classes: Any, options: Any) -> trm_node: ...
def trm_language_size(model: Any, size: Any, options: Any, err: Any) -> int: ...
def trm_language_is_masked(model: Any) -> bool: ...
def trm_language_complete(model: Any, options: Any, err: Any) -> int: ...
def trm_language_build(graph: Any, model: Any, ids: Any, options: Any) -> trm_node: ...
def trm_language_loss(graph: Any, model: Any, ids: Any, targets: Any, options: Any) -> trm_node: ...
def trm_widedeep(graph: Any, inputs: Any, options: Any) -> trm_node: ...
def trm_deepfm(graph: Any, inputs: Any, options: Any) -> trm_node: ...
def trm_dcnv2(graph: Any, inputs: Any, options: Any) -> trm_node: ...
def trm_dlrm(graph: Any, inputs: Any, options: Any) -> trm_node: ...
def trm_recommender_build(graph: Any, name: Any, inputs: Any, options: Any) -> trm_node: ...
def trm_network_build(graph: Any, name: Any, image: Any, options: Any) -> trm_node: ...
def trm_generator_create(model: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_generator_destroy(generator: Any) -> None: ...
def trm_generator_reset(generator: Any) -> None: ...
def trm_generator_read(generator: Any, ids: Any, count: Any, err: Any) -> int: ...
def trm_generator_logits(generator: Any) -> Any: ...
def trm_generator_weight_bytes(generator: Any) -> int: ...
def trm_generator_choose(generator: Any, sampling: Any) -> int: ...
def trm_safetensors_write(path: Any, tensors: Any, count: Any, metadata: Any, metadata_count: Any, err: Any) -> int: ...
def trm_safetensors_open(path: Any, out: Any, err: Any) -> int: ...
def trm_safetensors_close(file: Any) -> None: ...
def trm_safetensors_count(file: Any) -> int: ...
def trm_safetensors_at(file: Any, index: Any) -> Any: ...
def trm_safetensors_find(file: Any, name: Any) -> Any: ...
def trm_safetensors_metadata_count(file: Any) -> int: ...
def trm_safetensors_metadata_at(file: Any, index: Any) -> trm_text_pair: ...
def trm_safetensors_metadata(file: Any, key: Any) -> Optional[bytes]: ...
def trm_safetensors_read(file: Any, name: Any, into: Any, err: Any) -> int: ...
def trm_checkpoint_writer_open(folder: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_checkpoint_save(writer: Any, info: Any, parts: Any, part_count: Any, err: Any) -> int: ...
def trm_checkpoint_wait(writer: Any, err: Any) -> int: ...
def trm_checkpoint_writer_close(writer: Any, err: Any) -> int: ...
def trm_checkpoint_open(path: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_checkpoint_close(checkpoint: Any) -> None: ...
def trm_checkpoint_get_info(checkpoint: Any) -> Any: ...
def trm_checkpoint_part_of(checkpoint: Any, name: Any) -> Any: ...
def trm_checkpoint_latest(folder: Any, global_step: Any, err: Any) -> int: ...
def trm_events_open(folder: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_events_path(events: Any) -> Optional[bytes]: ...
def trm_events_scalars(events: Any, step: Any, scalars: Any, count: Any, err: Any) -> int: ...
def trm_events_histogram(events: Any, step: Any, tag: Any, values: Any, err: Any) -> int: ...
def trm_events_graph(events: Any, nodes: Any, count: Any, err: Any) -> int: ...
def trm_events_flush(events: Any, err: Any) -> int: ...
def trm_events_close(events: Any, err: Any) -> int: ...
def trm_metrics_open(path: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_metrics_write(metrics: Any, event: Any, global_step: Any, scalars: Any, count: Any, err: Any) -> int: ...
def trm_metrics_close(metrics: Any, err: Any) -> int: ...
def trm_record_open(folder: Any, role: Any, number: Any, out: Any, err: Any) -> int: ...
def trm_record_line(record: Any, json: Any, bytes: Any, err: Any) -> int: ...
def trm_record_close(record: Any) -> None: ...
def trm_npy_write(path: Any, array: Any, err: Any) -> int: ...
def trm_npz_write(path: Any, arrays: Any, count: Any, err: Any) -> int: ...
def trm_npz_open(path: Any, out: Any, err: Any) -> int: ...
def trm_npz_close(file: Any) -> None: ...
def trm_npz_count(file: Any) -> int: ...
def trm_npz_at(file: Any, index: Any) -> Any: ...
def trm_npz_find(file: Any, name: Any) -> Any: ...
def trm_npz_read(file: Any, name: Any, into: Any, err: Any) -> int: ...
def trm_file_write(path: Any, data: Any, bytes: Any, err: Any) -> int: ...
def trm_path_check(path: Any, folder: Any, err: Any) -> int: ...
def trm_inspect(path: Any, options: Any, sink: Any, context: Any, err: Any) -> int: ...
def trm_export_safetensors(model: Any, path: Any, err: Any) -> int: ...
def trm_export_npz(model: Any, path: Any, err: Any) -> int: ...
def trm_export_onnx(model: Any, path: Any, err: Any) -> int: ...
def trm_export_huggingface(model: Any, options: Any, folder: Any, err: Any) -> int: ...
def trm_huggingface_read(folder: Any, model: Any, network: Any, err: Any) -> int: ...
def trm_huggingface_read_image(folder: Any, model: Any, network: Any, image_size: Any, err: Any) -> int: ...
def trm_ps_place(variables: Any, count: Any, partition: Any, kind: Any, out: Any, err: Any) -> int: ...
def trm_pool_rows(bags: Any, out: Any) -> None: ...
def trm_pool_rows_gradient(bags: Any, d_out: Any, d_rows: Any, d_weights: Any) -> None: ...
def trm_feature_key(feature: Any, value: Any, bytes: Any, buckets: Any) -> int: ...
def trm_ps_server_start(options: Any, out: Any, err: Any) -> int: ...
def trm_ps_server_address(server: Any) -> Optional[bytes]: ...
def trm_ps_server_wait(server: Any, timeout_seconds: Any) -> int: ...
def trm_ps_server_stop(server: Any) -> None: ...
def trm_ps_client_create(options: Any, out: Any, err: Any) -> int: ...
def trm_ps_client_destroy(client: Any) -> None: ...
def trm_ps_client_next_batch(client: Any) -> int: ...
def trm_ps_client_table(client: Any, options: Any, table: Any, err: Any) -> int: ...
def trm_ps_client_cache(client: Any, table: Any, rows: Any, err: Any) -> int: ...
def trm_ps_batch_create(client: Any, out: Any, err: Any) -> int: ...
def trm_ps_batch_destroy(batch: Any) -> None: ...
def trm_ps_batch_clear(batch: Any) -> None: ...
def trm_ps_batch_add(batch: Any, table: Any, keys: Any, count: Any, rows: Any, gradients: Any, err: Any) -> int: ...
def trm_ps_pull_start(batch: Any, err: Any) -> int: ...
def trm_ps_pull_wait(batch: Any, err: Any) -> int: ...
def trm_ps_read(batch: Any, err: Any) -> int: ...
def trm_ps_push(batch: Any, options: Any, err: Any) -> int: ...
def trm_ps_flush(client: Any, err: Any) -> int: ...
def trm_ps_lease_take(client: Any, options: Any, lease: Any, err: Any) -> int: ...
def trm_ps_client_get_stats(client: Any, out: Any) -> None: ...
def trm_ps_table_get_stats(client: Any, table: Any, out: Any, err: Any) -> int: ...
def trm_ps_row(client: Any, table: Any, key: Any, info: Any, values: Any, slots: Any, err: Any) -> int: ...
def trm_ps_workers(client: Any, workers: Any, capacity: Any, count: Any, err: Any) -> int: ...
def trm_ps_chief_request(client: Any, wish: Any, timeout_seconds: Any, out: Any, err: Any) -> int: ...
def trm_ps_leave(client: Any, err: Any) -> int: ...
def trm_ps_checkpoint(client: Any, differential: Any, result: Any, err: Any) -> int: ...
def trm_ps_stop_servers(client: Any, err: Any) -> int: ...
def trm_ps_folder_open(path: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_ps_folder_close(folder: Any) -> None: ...
def trm_ps_folder_get_info(folder: Any, out: Any) -> None: ...
def trm_ps_folder_table(folder: Any, table: Any, rows: Any, slots: Any) -> Any: ...
def trm_ps_folder_row(folder: Any, table: Any, key: Any, info: Any, values: Any, slots: Any, err: Any) -> int: ...
def trm_ps_folder_writers(folder: Any, out: Any, total: Any) -> int: ...
def trm_ps_folder_each(folder: Any, table: Any, see: Any, context: Any, err: Any) -> int: ...
def trm_ps_client_adopt(client: Any, count: Any, err: Any) -> int: ...
def trm_ps_client_table_options(client: Any, table: Any, slots: Any) -> Any: ...
def trm_ps_audit_row(client: Any, table: Any, key: Any, info: Any, values: Any, slots: Any, writers: Any, writer_count: Any, err: Any) -> int: ...
def trm_inputs_get(inputs: Any, name: Any) -> trm_node: ...
def trm_loss_softmax(graph: Any, logits: Any, inputs: Any, context: Any) -> trm_node: ...
def trm_loss_softmax_expand(graph: Any, logits: Any, inputs: Any, context: Any) -> trm_node: ...
def trm_loss_logistic(graph: Any, logits: Any, inputs: Any, context: Any) -> trm_node: ...
def trm_softmax_cross_entropy_expand(graph: Any, logits: Any, labels: Any) -> trm_node: ...
def trm_learning_rate_at(rate: Any, step: Any) -> float: ...
def trm_model_create(options: Any, out: Any, err: Any) -> int: ...
def trm_model_destroy(model: Any) -> None: ...
def trm_model_exec(model: Any) -> Any: ...
def trm_model_graph(model: Any, logits: Any) -> Any: ...
def trm_model_global_step(model: Any) -> int: ...
def trm_model_request_stop(model: Any) -> None: ...
def trm_model_request_leave(model: Any) -> None: ...
def trm_model_set_note(model: Any, name: Any, value: Any, err: Any) -> int: ...
def trm_model_get_note(model: Any, name: Any, value: Any) -> bool: ...
def trm_model_evaluate(model: Any, data: Any, out: Any, err: Any) -> int: ...
def trm_model_predict(model: Any, data: Any, see: Any, context: Any, out: Any, err: Any) -> int: ...
def trm_model_evaluate_steps(model: Any, data: Any, steps: Any, out: Any, err: Any) -> int: ...
def trm_model_train(model: Any, options: Any, err: Any) -> int: ...
def trm_model_epoch_steps(model: Any, data: Any) -> int: ...
def trm_model_save(model: Any, writer: Any, err: Any) -> int: ...
def trm_model_resume(model: Any, path: Any, err: Any) -> int: ...
def trm_model_load(model: Any, path: Any, partial: Any, skipped: Any, err: Any) -> int: ...
def trm_loss_monitor(every: Any, print: Any) -> trm_callback: ...
def trm_time_monitor(print: Any) -> trm_callback: ...
def trm_model_checkpoint(options: Any) -> trm_callback: ...
def trm_evaluate_every(data: Any, every_epochs: Any) -> trm_callback: ...
def trm_early_stop(options: Any) -> trm_callback: ...
def trm_metrics_recorder(path: Any, every: Any) -> trm_callback: ...
def trm_run_recorder(directory: Any, every: Any) -> trm_callback: ...
def trm_take_mean_step(mark: Any, progress: Any) -> trm_mean_step: ...
def trm_event_name(event: Any) -> Optional[bytes]: ...
def trm_event_members(event: Any, progress: Any, mean: Any, text: Any, size: Any) -> int: ...
def trm_tensorboard(options: Any) -> trm_callback: ...
def trm_estimator_create(model_fn: Any, params: Any, config: Any, out: Any, err: Any) -> int: ...
def trm_estimator_destroy(estimator: Any) -> None: ...
def trm_train_and_evaluate(estimator: Any, train: Any, eval: Any, out: Any, err: Any) -> int: ...
def trm_estimator_request_stop(estimator: Any) -> None: ...
def trm_estimator_plan(estimator: Any, json: Any, out: Any, err: Any) -> int: ...
def trm_ps_initial_open(folder: Any, out: Any, err: Any) -> int: ...
def trm_ps_initial_close(source: Any) -> None: ...
def trm_top_k_add(top: Any, logits: Any, labels: Any, rows: Any, classes: Any) -> None: ...
def trm_top_k_value(top: Any, k: Any) -> float: ...
def trm_auc_create(out: Any, err: Any) -> int: ...
def trm_auc_destroy(auc: Any) -> None: ...
def trm_auc_reset(auc: Any) -> None: ...
def trm_auc_add(auc: Any, logits: Any, labels: Any, rows: Any) -> None: ...
def trm_auc_merge(into: Any, from_: Any) -> None: ...
def trm_auc_get(auc: Any, out: Any) -> None: ...
def trm_mesh_ranks(mesh: Any, ranks: Any, err: Any) -> int: ...
def trm_planner_create(model: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_planner_destroy(planner: Any) -> None: ...
def trm_planner_get_info(planner: Any, out: Any) -> None: ...
def trm_planner_report(planner: Any, json: Any) -> Any: ...
def trm_planner_svg(planner: Any) -> Any: ...
def trm_planner_dot(planner: Any) -> Any: ...
def trm_planner_plan(planner: Any, index: Any, about: Any) -> Any: ...
def trm_planner_remeasure(planner: Any, err: Any) -> int: ...
def trm_planner_save(planner: Any, file: Any, err: Any) -> int: ...
def trm_plan_read(file: Any, out: Any, text: Any, err: Any) -> int: ...
def trm_planner_share(planner: Any, comm: Any, out: Any, text: Any, err: Any) -> int: ...
def trm_plan_follow(plan: Any, text: Any, model: Any) -> None: ...
def trm_planner_simulate(planner: Any, options: Any, text: Any, err: Any) -> int: ...
def trm_planner_run(model: Any, comm: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_planner_compare(model: Any, comm: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_hardware_plan_create(options: Any, out: Any, err: Any) -> int: ...
def trm_hardware_plan_destroy(plan: Any) -> None: ...
def trm_hardware_plan_get_info(plan: Any, out: Any) -> None: ...
def trm_hardware_plan_report(plan: Any, json: Any) -> Any: ...
def trm_hardware_plan_svg(plan: Any) -> Any: ...
def trm_hardware_plan_export(plan: Any, engine: Any, directory: Any, err: Any) -> int: ...
def trm_verify_kind_name(kind: Any) -> Optional[bytes]: ...
def trm_verify(model: Any, options: Any, out: Any, err: Any) -> int: ...
def trm_verification_destroy(verification: Any) -> None: ...
def trm_layout(count: Any) -> Any: ...
