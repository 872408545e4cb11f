/* SPDX-License-Identifier: Apache-2.0 */
/* base/sanitizers.h: whether the build uses a sanitizer. gcc defines macros, clang has features. */
#ifndef TRIREME_BASE_SANITIZERS_H
#define TRIREME_BASE_SANITIZERS_H

#ifdef __has_feature
#define TRMI_HAS_FEATURE_(name) __has_feature(name)
#else
#define TRMI_HAS_FEATURE_(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || TRMI_HAS_FEATURE_(thread_sanitizer)
#define TRMI_THREAD_SANITIZER 1
#else
#define TRMI_THREAD_SANITIZER 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TRMI_HAS_FEATURE_(address_sanitizer)
#define TRMI_ADDRESS_SANITIZER 1
#else
#define TRMI_ADDRESS_SANITIZER 0
#endif

#endif
