/* check.h - macros and functions of the C tests: CHECK counts a condition, RUN a call that must
** succeed, check_end prints the counts, count_trials scales the number of random cases. */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "tycho.h"

static int check_passed, check_failed;

#define CHECK(condition, ...) do { \
    if (condition) { check_passed++; break; } \
    check_failed++; \
    printf("FAIL %s:%d: %s: ", __FILE__, __LINE__, #condition); \
    printf(__VA_ARGS__); \
    putchar('\n'); \
  } while (0)

#define RUN(call) do { \
    int code_ = (call); \
    CHECK(code_ == TY_OK, "status %d, %s", code_, ty_error()); \
  } while (0)

/* Returns n, or n / TYCHO_TEST_SHARE where the processor is emulated. */
static inline int count_trials(int n)
{
  const char *text = getenv("TYCHO_TEST_SHARE");
  const int share = text ? atoi(text) : 1;
  return share <= 1 ? n : n < share ? 1 : n / share;
}

static inline int check_end(void)
{
  printf("%d passed, %d failed\n", check_passed, check_failed);
  return check_failed ? 1 : 0;
}
