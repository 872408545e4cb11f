# SPDX-License-Identifier: Apache-2.0
# trireme-sim: a cluster in one process (tests/sim/sim.h). Calls of the product to these functions reach tests/sim.
# Not under sanitizers: they do not know the stacks of its tasks.
set(SIM_CALLS
  pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_unlock
  pthread_condattr_init pthread_condattr_destroy pthread_condattr_setclock pthread_cond_init pthread_cond_destroy
  pthread_cond_wait pthread_cond_timedwait pthread_cond_signal pthread_cond_broadcast
  pthread_create pthread_join pthread_self pthread_sigmask pthread_getschedparam pthread_setschedparam sched_yield
  clock_gettime time usleep nanosleep getpid kill gethostname getrandom
  poll epoll_create1 epoll_ctl epoll_wait eventfd read write close fcntl
  socket bind listen accept4 connect recv send sendmsg shutdown setsockopt getsockopt getsockname getpeername
  getaddrinfo freeaddrinfo getnameinfo
  open lseek flock mkstemp fsync fdatasync pread pwrite ftruncate truncate stat lstat fstat access chmod mkdir unlink rmdir rename link
  opendir readdir closedir fopen readlink json_load_file utimensat statvfs mmap madvise
  trmi_alloc calloc realloc free trmi_hmac_sha256
  trm_comm_create trm_comm_destroy trmi_elastic_adopt
  trmi_run_is_again trmi_run_set_checkpoints trmi_call_checkpoint trmi_model_rank trmi_model_broadcast_answer
  trm_model_save trmi_checkpoint_job_write trmi_client_order trmi_lease_check
  trmi_client_send_order trmi_shard_log_push trmi_shard_log_open trmi_front_push trmi_request_answer trmi_order_note_refused trmi_server_away_set
  trmi_estimator_data trmi_estimator_model trm_model_create trm_model_load trm_model_evaluate_steps trm_model_destroy
  trm_dataset_destroy)
list(TRANSFORM SIM_CALLS PREPEND "LINKER:--wrap=")
file(GLOB sim_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/sim/*.c)
add_executable(trireme-sim ${sim_sources})
target_compile_definitions(trireme-sim PRIVATE _GNU_SOURCE)
target_compile_options(trireme-sim PRIVATE -Wall -Wextra)
target_include_directories(trireme-sim PRIVATE ${CMAKE_SOURCE_DIR}/tests/sim)
target_link_libraries(trireme-sim PRIVATE trireme_static)
target_link_options(trireme-sim PRIVATE ${SIM_CALLS})
add_test(NAME sim/seeds COMMAND trireme-sim --seeds 1:60)
add_test(NAME sim/found COMMAND trireme-sim --list ${CMAKE_SOURCE_DIR}/tests/sim/seeds.txt)
add_test(NAME sim/mutants COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/sim/mutants.py ${CMAKE_BINARY_DIR} --check)
add_test(NAME sim/wrong_number COMMAND trireme-sim --seed 12a)
set_tests_properties(sim/wrong_number PROPERTIES PASS_REGULAR_EXPRESSION "--seed: 12a: a whole number up to")
add_test(NAME sim/no_seeds COMMAND trireme-sim --memory)
set_tests_properties(sim/no_seeds PROPERTIES PASS_REGULAR_EXPRESSION "no seeds are given")
set_tests_properties(sim/seeds sim/found sim/mutants PROPERTIES TIMEOUT ${TEST_SECONDS} LABELS sim)
set_tests_properties(sim/mutants PROPERTIES SKIP_RETURN_CODE 77)
