/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#define PAGE_SIZE 4096UL
