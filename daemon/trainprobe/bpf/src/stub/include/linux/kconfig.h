/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#define CONFIG_64BIT       1
#define CONFIG_BPF_SYSCALL 1
