/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/line_state.h: how far two CPUs are from each other, now. A virtual machine's
 * CPUs move between cores of its host, within seconds or minutes: now they have a cache in common,
 * now they do not, and whatever ranks or threads hand to each other takes three times as long. What
 * is measured in one state says little about the other, so measurements are told apart by it. */
#ifndef TRMI_EXEC_LINE_STATE_H
#define TRMI_EXEC_LINE_STATE_H

typedef enum trmi_lines {
    TRMI_LINES_UNKNOWN, /* one CPU, or others were in the way */
    /* a line that the other CPU has written comes out of a cache that both have: below 100 ns */
    TRMI_LINES_NEAR,
    TRMI_LINES_FAR
} trmi_lines;

/* Two threads hand a line to each other, for 0.1 to 0.5 ms; at most 10.   thread  any */
trmi_lines trmi_lines_now(void);
/* What it mostly is, in a twentieth of a second: near if it is that a quarter of the time. */
trmi_lines trmi_lines_usual(void);

#endif
