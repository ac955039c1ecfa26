/* comm_test.c - groups of ranks in one process: sums, broadcasts and gatherings of all dtypes and
** sizes against values computed here, equal bits on all ranks, and ranks that leave. */
#include <math.h>
#include <pthread.h>
#include "check.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "tensor/tensor.h"

enum { RANKS = 5 };
static const int types[] = { TY_F32, TY_F64, TY_F16, TY_BF16, TY_U8, TY_I8, TY_I32, TY_I64, TY_BOOL };

/* small whole numbers, so that sums are exact in every type */
static double element(int rank, int64_t i) { return (double)((i * 7 + rank * 3) % 5); }

static ty_tensor *filled(int dtype, int64_t n, int rank)
{
  ty_desc d = { .dtype = dtype, .ndim = 1, .dim = { n } };
  ty_tensor *t = NULL;
  double *x = malloc(sizeof *x * (size_t)n);
  void *typed = malloc(dtype_size(dtype) * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = element(rank, i);
  dtype_convert(typed, dtype, x, TY_F64, n);
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, typed, desc_bytes(&d)));
  free(x);
  free(typed);
  return t;
}

/* how many elements are not as they should be */
static int64_t wrong(ty_tensor *t, double (*want)(int64_t i))
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
  for (int r = 0; r < RANKS; r++) sum += element(r, i);
  return sum;
}
static double any_of_ranks(int64_t i) { return sum_of_ranks(i) > 0; }
static double of_rank_3(int64_t i) { return element(3, i); }
static double whether_rank_3(int64_t i) { return element(3, i) != 0; }

static void sums(ty_comm **group)
{
  /* shorter than the ranks, odd, across a part's unit, across a block of 8 MB */
  static const int64_t sizes[] = { 1, 3, 63, 1000, 70001, (2 << 20) + 77 };
  for (int t = 0; t < COUNT(types); t++)
    for (int s = 0; s < COUNT(sizes) - (types[t] != TY_F32); s++) {
      ty_tensor *x[RANKS][2];
      for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < 2; k++) x[r][k] = filled(types[t], sizes[s] + k, r);
        RUN(ty_comm_sum(group[r], x[r], x[r], 2, TY_WIRE_FULL, 0, 0));
      }
      for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < 2; k++) {
          int64_t bad = wrong(x[r][k], types[t] == TY_BOOL ? any_of_ranks : sum_of_ranks);
          CHECK(!bad, "%s, %lld elements, rank %d: %lld wrong", dtype_name(types[t]),
              (long long)sizes[s], r, (long long)bad);
          ty_tensor_free(x[r][k]);
        }
    }
}

static void broadcasts(ty_comm **group)
{
  for (int t = 0; t < COUNT(types); t++) {
    ty_tensor *x[RANKS];
    for (int r = 0; r < RANKS; r++) {
      x[r] = filled(types[t], 1001, r);
      RUN(ty_comm_broadcast(group[r], &x[r], 1, 3));
    }
    for (int r = 0; r < RANKS; r++) {
      int64_t bad = wrong(x[r], types[t] == TY_BOOL ? whether_rank_3 : of_rank_3);
      CHECK(!bad, "%s, rank %d: %lld wrong", dtype_name(types[t]), r, (long long)bad);
      ty_tensor_free(x[r]);
    }
  }
}

/* The order of ranks: 2^24 + 1 + 1 is 2^24 in float32, 1 + 1 + 2^24 is not. */
static void keeps_the_order(ty_comm **group)
{
  static const float value[RANKS] = { 0x1p24f, 1, 1, 0, 0 }, want = 0x1p24f;
  ty_tensor *x[RANKS];
  for (int r = 0; r < RANKS; r++) {
    x[r] = filled(TY_F32, 200, 0);
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

/* Shorter types on the way: exact for small whole numbers; two bits are a threshold each. */
static void wires(ty_comm **group)
{
  for (int wire = TY_WIRE_F16; wire <= TY_WIRE_BF16; wire++) {
    ty_tensor *x[RANKS];
    for (int r = 0; r < RANKS; r++) {
      x[r] = filled(TY_F32, 3001, r);
      RUN(ty_comm_sum(group[r], &x[r], &x[r], 1, wire, 0, 0));
    }
    for (int r = 0; r < RANKS; r++) {
      CHECK(!wrong(x[r], sum_of_ranks), "wire %d, rank %d", wire, r);
      ty_tensor_free(x[r]);
    }
  }
  ty_tensor *x[RANKS];
  for (int r = 0; r < RANKS; r++) {
    float y[130];
    for (int i = 0; i < COUNT(y); i++) y[i] = (float)((i + r) % 3 - 1) * 0.5f;
    x[r] = filled(TY_F32, COUNT(y), 0);
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

static void gatherings(ty_comm **group)
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

/* Who waits for a rank that has left is told, not left waiting. */
static void leaves(ty_comm **group)
{
  ty_tensor *x[RANKS];
  for (int r = 1; r < RANKS; r++) {
    x[r] = filled(TY_F32, 10, r);
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

static void refusals(ty_comm **group)
{
  ty_comm *none[1];
  ty_tensor *x[2] = { filled(TY_F32, 3, 0), filled(TY_F64, 3, 0) };
  CHECK(ty_comm_sum(group[0], x, x, 2, TY_WIRE_FULL, 0, 0) == TY_EDTYPE, "%s", ty_error());
  CHECK(ty_comm_sum(group[0], x + 1, x + 1, 1, TY_WIRE_F16, 0, 0) == TY_EDTYPE, "%s", ty_error());
  CHECK(ty_comm_sum(group[0], x, x, 0, TY_WIRE_FULL, 0, 0) == TY_ETYPE, "%s", ty_error());
  CHECK(ty_comm_broadcast(group[0], x, 1, RANKS) == TY_EVALUE, "%s", ty_error());
  CHECK(ty_comm_open("pigeons", 1, none) == TY_EVALUE, "%s", ty_error());
  CHECK(ty_comm_open("threads", 0, none) == TY_EVALUE, "%s", ty_error());
  ty_tensor_free(x[0]);
  ty_tensor_free(x[1]);
}

int main(void)
{
  ty_comm *group[RANKS];
  int64_t before = ty_live("bytes");
  RUN(ty_comm_open("threads", RANKS, group));
  for (int r = 0; r < RANKS; r++)
    CHECK(ty_comm_rank(group[r]) == r && ty_comm_size(group[r]) == RANKS, "rank %d", r);
  sums(group);
  broadcasts(group);
  keeps_the_order(group);
  wires(group);
  gatherings(group);
  refusals(group);
  leaves(group);
  RUN(ty_wait(-1));
  CHECK(ty_live("tensor") == 0, "%lld tensors live", (long long)ty_live("tensor"));
  CHECK(ty_live("bytes") <= before + (8 << 20), "%lld bytes more",
      (long long)(ty_live("bytes") - before));
  return check_end();
}
