/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
#ifndef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 1, 0)
#endif
