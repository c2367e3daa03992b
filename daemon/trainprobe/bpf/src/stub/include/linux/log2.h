/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* roundup_pow_of_two() as a constant expression: smear the highest bit downwards. */
#pragma once
#define SMEAR_1(n)            ((n) | ((n) >> 1))
#define SMEAR_2(n)            (SMEAR_1(n) | (SMEAR_1(n) >> 2))
#define SMEAR_4(n)            (SMEAR_2(n) | (SMEAR_2(n) >> 4))
#define SMEAR_8(n)            (SMEAR_4(n) | (SMEAR_4(n) >> 8))
#define SMEAR_16(n)           (SMEAR_8(n) | (SMEAR_8(n) >> 16))
#define roundup_pow_of_two(n) (SMEAR_16((unsigned int)(n) - 1) + 1)
