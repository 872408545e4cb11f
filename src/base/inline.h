/* SPDX-License-Identifier: Apache-2.0 */
/* base/inline.h: functions that every caller contains, whatever the compiler thinks of their size:
 * a call would cost more than the body, or the body needs the caller's instruction set or its
 * constants. */
#ifndef TRMI_BASE_INLINE_H
#define TRMI_BASE_INLINE_H

#define TRMI_INLINE static inline __attribute__((always_inline))

#endif
