/* comm_test.c - groups of ranks in one process: sums, broadcasts and gatherings of all dtypes and
** sizes against values computed here, equal bits on all ranks, and ranks that leave. */
#include <math.h>
#include <pthread.h>
#include "check.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "tensor/tensor.h"

enum { RANKS = 5 };
static const int types[] = { TY_F32, TY_F64, TY_F16, TY_BF16, TY_U8, TY_I8, TY_I32, TY_I64,
  TY_BOOL };

/* Returns a small whole number, so that sums are exact in every type. */
static double make_element(int rank, int64_t i) { return (double)((i * 7 + rank * 3) % 5); }

static ty_tensor *make_filled(int dtype, int64_t n, int rank)
{
  ty_desc d = { .dtype = dtype, .ndim = 1, .dim = { n } };
  ty_tensor *t = NULL;
  double *x = malloc(sizeof *x * (size_t)n);
  void *typed = malloc(dtype_size(dtype) * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = make_element(rank, i);
  dtype_convert(typed, dtype, x, TY_F64, n);
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, typed, desc_bytes(&d)));
  free(x);
  free(typed);
  return t;
}

/* Returns how many elements differ from what want returns. */
static int64_t count_wrong(ty_tensor *t, double (*want)(int64_t i))
{
  int64_t n = t->d.dim[0], bad = 0;
  double *x = malloc(sizeof *x * (size_t)n);
  void *typed = malloc(desc_bytes(&t->d));
  RUN(ty_tensor_read(t, typed, desc_bytes(&t->d)));
  dtype_convert(x, TY_F64, typed, t->d.dtype, n);
  for (int64_t i = 0; i < n; i++) bad += x[i] != want(i);
  free(x);
  free(typed);
  return bad;
}

static double sum_of_ranks(int64_t i)
{
  double sum = 0;
  for (int r = 0; r < RANKS; r++) sum += make_element(r, i);
  return sum;
}
static double any_of_ranks(int64_t i) { return sum_of_ranks(i) > 0; }
static double of_rank_3(int64_t i) { return make_element(3, i); }
static double whether_rank_3(int64_t i) { return make_element(3, i) != 0; }

static void check_sums(ty_comm **group)
{
  /* fewer than the ranks, odd, longer than a part's unit, longer than a block of 8 MB */
  static const int64_t sizes[] = { 1, 3, 63, 1000, 70001, (2 << 20) + 77 };
  for (int t = 0; t < COUNT(types); t++)
    for (int s = 0; s < COUNT(sizes) - (types[t] != TY_F32); s++) {
      ty_tensor *x[RANKS][2];
      for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < 2; k++) x[r][k] = make_filled(types[t], sizes[s] + k, r);
        RUN(ty_comm_sum(group[r], x[r], x[r], 2, TY_WIRE_FULL, 0, 0));
      }
      for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++) {
          int64_t bad = count_wrong(x[r][k], types[t] == TY_BOOL ? any_of_ranks : sum_of_ranks);
          CHECK(!bad, "%s, %lld elements, rank %d: %lld wrong", dtype_name(types[t]),
              (long long)sizes[s], r, (long long)bad);
          ty_tensor_free(x[r][k]);
        }
    }
}

static void check_broadcasts(ty_comm **group)
{
  for (int t = 0; t < COUNT(types); t++) {
    ty_tensor *x[RANKS];
    for (int r = 0; r < RANKS; r++) {
      x[r] = make_filled(types[t], 1001, r);
      RUN(ty_comm_broadcast(group[r], &x[r], 1, 3));
    }
    for (int r = 0; r < RANKS; r++) {
      int64_t bad = count_wrong(x[r], types[t] == TY_BOOL ? whether_rank_3 : of_rank_3);
      CHECK(!bad, "%s, rank %d: %lld wrong", dtype_name(types[t]), r, (long long)bad);
      ty_tensor_free(x[r]);
    }
  }
}

/* Checks that ranks are added in order: 2^24 + 1 + 1 is 2^24 in float32, 1 + 1 + 2^24 is not. */
static void check_order(ty_comm **group)
{
  static const float value[RANKS] = { 0x1p24f, 1, 1, 0, 0 }, want = 0x1p24f;
  ty_tensor *x[RANKS];
  for (int r = 0; r < RANKS; r++) {
    x[r] = make_filled(TY_F32, 200, 0);
    float y[200];
    for (int i = 0; i < COUNT(y); i++) y[i] = value[r];
    RUN(ty_tensor_write(x[r], y, sizeof y));
    RUN(ty_comm_sum(group[r], &x[r], &x[r], 1, TY_WIRE_FULL, 0, 0));
  }
  for (int r = 0; r < RANKS; r++) {
    float y[200];
    int bad = 0;
    RUN(ty_tensor_read(x[r], y, sizeof y));
    for (int i = 0; i < COUNT(y); i++) bad += y[i] != want;
    CHECK(!bad, "rank %d: %d of 200 were added in another order", r, bad);
    ty_tensor_free(x[r]);
  }
}

/* Checks sums sent in shorter types, exact for small whole numbers, and in two bits, exact for 0
** and plus or minus the threshold. */
static void check_wires(ty_comm **group)
{
  for (int wire = TY_WIRE_F16; wire <= TY_WIRE_BF16; wire++) {
    ty_tensor *x[RANKS];
    for (int r = 0; r < RANKS; r++) {
      x[r] = make_filled(TY_F32, 3001, r);
      RUN(ty_comm_sum(group[r], &x[r], &x[r], 1, wire, 0, 0));
    }
    for (int r = 0; r < RANKS; r++) {
      CHECK(!count_wrong(x[r], sum_of_ranks), "wire %d, rank %d", wire, r);
      ty_tensor_free(x[r]);
    }
  }
  ty_tensor *x[RANKS];
  for (int r = 0; r < RANKS; r++) {
    float y[130];
    for (int i = 0; i < COUNT(y); i++) y[i] = (float)((i + r) % 3 - 1) * 0.5f;
    x[r] = make_filled(TY_F32, COUNT(y), 0);
    RUN(ty_tensor_write(x[r], y, sizeof y));
    RUN(ty_comm_sum(group[r], &x[r], &x[r], 1, TY_WIRE_2BIT, 0.5, 0));
  }
  for (int r = 0; r < RANKS; r++) {
    float y[130];
    RUN(ty_tensor_read(x[r], y, sizeof y));
    int bad = 0;
    for (int i = 0; i < COUNT(y); i++) {
      float want = 0;
      for (int k = 0; k < RANKS; k++) want += (float)((i + k) % 3 - 1) * 0.5f;
      bad += y[i] != want;
    }
    CHECK(!bad, "two bits, rank %d: %d wrong", r, bad);
    ty_tensor_free(x[r]);
  }
}

struct caller { ty_comm *comm; int rank, bad; };
static void *call_gather(void *context)
{
  struct caller *c = context;
  int all[RANKS];
  for (int i = 0; i < 100; i++) {
    int own = c->rank * 1000 + i;
    c->bad += ty_comm_gather(c->comm, &own, sizeof own, all) != TY_OK;
    for (int r = 0; r < RANKS; r++) c->bad += all[r] != r * 1000 + i;
    c->bad += ty_comm_gather(c->comm, NULL, 0, NULL) != TY_OK;
  }
  return NULL;
}

static void check_gatherings(ty_comm **group)
{
  pthread_t thread[RANKS];
  struct caller caller[RANKS];
  for (int r = 0; r < RANKS; r++) {
    caller[r] = (struct caller){ group[r], r, 0 };
    pthread_create(&thread[r], NULL, call_gather, &caller[r]);
  }
  for (int r = 0; r < RANKS; r++) {
    pthread_join(thread[r], NULL);
    CHECK(!caller[r].bad, "rank %d: %d wrong", r, caller[r].bad);
  }
}

/* Checks that a wait for a rank that has left fails. */
static void check_leaving(ty_comm **group)
{
  ty_tensor *x[RANKS];
  for (int r = 1; r < RANKS; r++) {
    x[r] = make_filled(TY_F32, 10, r);
    RUN(ty_comm_sum(group[r], &x[r], &x[r], 1, TY_WIRE_FULL, 0, 0));
  }
  ty_comm_free(group[0]);
  for (int r = 1; r < RANKS; r++) {
    int code = ty_tensor_wait(x[r], 0);
    CHECK(code == TY_ERUN && strstr(ty_error(), "has left"), "rank %d: status %d, %s", r, code,
        ty_error());
    ty_tensor_free(x[r]);
    ty_comm_free(group[r]);
  }
}

/* Checks code and whole text of a failure. */
static void expect_refusal(int code, int want, const char *text)
{
  CHECK(code == want && !strcmp(ty_error(), text), "status %d, %s; expected %d, %s", code,
      ty_error(), want, text);
}

static void check_refused_arrays(ty_comm *c)
{
  static const char gone[] = "ty_comm_sum: the group or the arrays are missing";
  ty_tensor *x = make_filled(TY_F32, 3, 0), *y = make_filled(TY_F64, 3, 0),
            *z = make_filled(TY_F32, 4, 0);
  ty_tensor *both[2] = { x, y }, *none[1] = { NULL };
  expect_refusal(ty_comm_sum(NULL, &x, &x, 1, TY_WIRE_FULL, 0, 0), TY_ETYPE, gone);
  expect_refusal(ty_comm_sum(c, NULL, &x, 1, TY_WIRE_FULL, 0, 0), TY_ETYPE, gone);
  expect_refusal(ty_comm_sum(c, &x, NULL, 1, TY_WIRE_FULL, 0, 0), TY_ETYPE, gone);
  expect_refusal(ty_comm_sum(c, &x, &x, 0, TY_WIRE_FULL, 0, 0), TY_ETYPE, gone);
  expect_refusal(ty_comm_sum(c, none, &x, 1, TY_WIRE_FULL, 0, 0), TY_ETYPE,
      "ty_comm_sum: array 0 is missing");
  expect_refusal(ty_comm_sum(c, both, both, 2, TY_WIRE_FULL, 0, 0), TY_EDTYPE,
      "ty_comm_sum: array 1 is float64, the first one float32");
  expect_refusal(ty_comm_sum(c, &x, &z, 1, TY_WIRE_FULL, 0, 0), TY_ESHAPE,
      "ty_comm_sum: array 0 has 3 elements, its sum 4");
  expect_refusal(ty_comm_sum(c, &x, &y, 1, TY_WIRE_FULL, 0, 0), TY_EDTYPE,
      "ty_comm_sum: arrays of float32, sums of float64");
  expect_refusal(ty_comm_sum(c, &x, &x, 1, TY_WIRE_FULL - 1, 0, 0), TY_EVALUE,
      "ty_comm_sum: no way of sending -1");
  expect_refusal(ty_comm_sum(c, &x, &x, 1, TY_WIRE_2BIT + 1, 0, 0), TY_EVALUE,
      "ty_comm_sum: no way of sending 4");
  expect_refusal(ty_comm_sum(c, &y, &y, 1, TY_WIRE_F16, 0, 0), TY_EDTYPE,
      "ty_comm_sum: only float32 is sent as a shorter type, not float64");
  expect_refusal(
      ty_comm_broadcast(c, none, 1, 0), TY_ETYPE, "ty_comm_broadcast: array 0 is missing");
  expect_refusal(ty_comm_broadcast(c, &x, 1, -1), TY_EVALUE,
      "ty_comm_broadcast: there is no rank -1 of 5");
  expect_refusal(ty_comm_broadcast(c, &x, 1, RANKS), TY_EVALUE,
      "ty_comm_broadcast: there is no rank 5 of 5");
  ty_tensor_free(x);
  ty_tensor_free(y);
  ty_tensor_free(z);
}

static void check_refused_calls(ty_comm *c)
{
  static const char gather[] = "ty_comm_gather: an argument is missing";
  static const char stats[] = "ty_comm_stats: an argument is missing";
  ty_comm *none[16];
  int64_t n;
  char byte = 0;
  expect_refusal(ty_comm_gather(NULL, &byte, 1, &byte), TY_ETYPE, gather);
  expect_refusal(ty_comm_gather(c, NULL, 1, &byte), TY_ETYPE, gather);
  expect_refusal(ty_comm_gather(c, &byte, 1, NULL), TY_ETYPE, gather);
  expect_refusal(ty_comm_gather(c, &byte, (1 << 20) + 1, &byte), TY_EVALUE,
      "ty_comm_gather: 1048577 bytes; at most a megabyte");
  expect_refusal(ty_comm_stats(NULL, &n, &n, &n), TY_ETYPE, stats);
  expect_refusal(ty_comm_stats(c, NULL, &n, &n), TY_ETYPE, stats);
  expect_refusal(ty_comm_stats(c, &n, NULL, &n), TY_ETYPE, stats);
  expect_refusal(ty_comm_stats(c, &n, &n, NULL), TY_ETYPE, stats);
  expect_refusal(ty_comm_abort(NULL, NULL), TY_ETYPE, "ty_comm_abort: the group is missing");
  expect_refusal(
      ty_comm_open("pigeons", 1, none), TY_EVALUE, "no group of ranks is of kind 'pigeons'");
  expect_refusal(ty_comm_open("threads", 0, none), TY_EVALUE,
      "a group of 0 ranks in one process: 1 to 16");
  expect_refusal(ty_comm_open("threads", 17, none), TY_EVALUE,
      "a group of 17 ranks in one process: 1 to 16");
  expect_refusal(ty_comm_open("threads", 16, none), TY_EDEVICE, "a process has at most 16 ranks");
  RUN(ty_comm_open("threads", 16 - RANKS, none)); /* the refused group holds no ranks */
  for (int i = 0; i < 16 - RANKS; i++) ty_comm_free(none[i]);
}

/* Checks the counts of messages, bytes and time of a rank. */
static void check_counts(ty_comm *c)
{
  int64_t before[3], after[3];
  ty_comm *alone;
  ty_tensor *x = make_filled(TY_F32, 10, 0);
  RUN(ty_comm_stats(c, &before[0], &before[1], &before[2]));
  CHECK(before[0] > 0 && before[1] > before[0] && before[2] > 0, "%lld messages, %lld bytes",
      (long long)before[0], (long long)before[1]);
  RUN(ty_comm_open("threads", 1, &alone));
  RUN(ty_comm_sum(alone, &x, &x, 1, TY_WIRE_FULL, 0, 0));
  RUN(ty_tensor_wait(x, 0));
  RUN(ty_comm_stats(alone, &after[0], &after[1], &after[2]));
  CHECK(after[0] == 1 && after[1] == 40, "%lld messages, %lld bytes", (long long)after[0],
      (long long)after[1]);
  ty_tensor_free(x);
  ty_comm_free(alone);
}

/* Checks that a rank that ends its group ends the waits of the others. */
static void check_ended_group(void)
{
  ty_comm *pair[2];
  ty_tensor *x = make_filled(TY_F32, 10, 0);
  RUN(ty_comm_open("threads", 2, pair));
  RUN(ty_comm_sum(pair[0], &x, &x, 1, TY_WIRE_FULL, 0, 0));
  RUN(ty_comm_abort(pair[1], "no more"));
  int code = ty_tensor_wait(x, 0);
  CHECK(code == TY_ERUN && strstr(ty_error(), "the group was ended"), "status %d, %s", code,
      ty_error());
  ty_tensor_free(x);
  for (int r = 0; r < 2; r++) ty_comm_free(pair[r]);
}

int main(void)
{
  ty_comm *group[RANKS];
  int64_t before = ty_live("bytes");
  RUN(ty_comm_open("threads", RANKS, group));
  for (int r = 0; r < RANKS; r++)
    CHECK(ty_comm_rank(group[r]) == r && ty_comm_size(group[r]) == RANKS, "rank %d", r);
  check_sums(group);
  check_broadcasts(group);
  check_order(group);
  check_wires(group);
  check_gatherings(group);
  check_refused_arrays(group[0]);
  check_refused_calls(group[0]);
  check_counts(group[0]);
  check_ended_group();
  check_leaving(group);
  RUN(ty_wait(-1));
  CHECK(ty_live("tensor") == 0, "%lld tensors live", (long long)ty_live("tensor"));
  CHECK(ty_live("bytes") <= before + (8 << 20), "%lld bytes more",
      (long long)(ty_live("bytes") - before));
  return check_end();
}
