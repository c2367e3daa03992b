/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of system calls, where their number and first arguments lie in pt_regs, and the arguments of a function.
 * RETURNING_ARGUMENT_*: of one that returns an object with a destructor: on x86-64 the place for it is a hidden first
 * argument, on aarch64 it has a register of its own (x8). aarch64: written from the kernel's headers and the ABI, not
 * run. */
#pragma once
#include <uapi/linux/ptrace.h>
#if defined(__x86_64__)
#define CALL_READ_NUMBER           0
#define CALL_WRITE_NUMBER          1
#define CALL_CLOSE_NUMBER          3
#define CALL_PREAD_NUMBER          17
#define CALL_CONTROL_NUMBER        72
#define CALL_NUMBER_OFFSET         __builtin_offsetof(struct pt_regs, orig_ax)
#define CALL_NUMBER_TYPE           s64
#define CALL_ARGUMENT_OFFSET       __builtin_offsetof(struct pt_regs, di)
#define CALL_ARGUMENT_2_OFFSET     __builtin_offsetof(struct pt_regs, si)
#define CALL_ARGUMENT_3_OFFSET     __builtin_offsetof(struct pt_regs, dx)
#define ARGUMENT_1(regs)           ((regs)->di)
#define ARGUMENT_2(regs)           ((regs)->si)
#define ARGUMENT_4(regs)           ((regs)->cx)
#define RESULT(regs)               ((regs)->ax)
#define INSTRUCTION_POINTER(regs)  ((regs)->ip)
#define STACK_POINTER(regs)        ((regs)->sp)
#define RETURN_POPS                8 /* by so much higher is the stack pointer when a function has returned */
#define RETURNING_ARGUMENT_1(regs) ((regs)->si)
#define RETURNING_ARGUMENT_2(regs) ((regs)->dx)
#elif defined(__aarch64__)
#define CALL_CONTROL_NUMBER        25
#define CALL_CLOSE_NUMBER          57
#define CALL_READ_NUMBER           63
#define CALL_WRITE_NUMBER          64
#define CALL_PREAD_NUMBER          67
#define CALL_NUMBER_OFFSET         __builtin_offsetof(struct pt_regs, syscallno)
#define CALL_NUMBER_TYPE           s32
#define CALL_ARGUMENT_OFFSET       __builtin_offsetof(struct pt_regs, orig_x0)
#define CALL_ARGUMENT_2_OFFSET     __builtin_offsetof(struct pt_regs, regs[1])
#define CALL_ARGUMENT_3_OFFSET     __builtin_offsetof(struct pt_regs, regs[2])
#define ARGUMENT_1(regs)           ((regs)->regs[0])
#define ARGUMENT_2(regs)           ((regs)->regs[1])
#define ARGUMENT_4(regs)           ((regs)->regs[3])
#define RESULT(regs)               ((regs)->regs[0])
#define INSTRUCTION_POINTER(regs)  ((regs)->pc)
#define STACK_POINTER(regs)        ((regs)->sp)
#define RETURN_POPS                0
#define LINK_REGISTER(regs)        ((regs)->regs[30]) /* holds the return address; on x86-64 it lies on the stack */
#define RETURNING_ARGUMENT_1(regs) ((regs)->regs[0])
#define RETURNING_ARGUMENT_2(regs) ((regs)->regs[1])
#endif
