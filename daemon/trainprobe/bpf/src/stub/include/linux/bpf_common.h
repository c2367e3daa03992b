/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#define BPF_CLASS(code) ((code) & 0x07)
#define BPF_LD          0x00
#define BPF_W           0x00
#define BPF_H           0x08
#define BPF_B           0x10
#define BPF_MAXINSNS    4096
