/* work.cc - a collective as work of a stream. A rank copies its numbers to the group's file when it
** is the collective's turn in its stream, and takes the result when every rank has done so; until
** then its stream waits, and other streams go on. Each collective starts its sums at a different
** rank, the same on all ranks, since no program may depend on the order. */
#include <chrono>
#include <string.h>
#include <unistd.h>
#include "group.h"

namespace cudasim {

static const size_t PLACE = (size_t)1 << 32;          /* of a rank's numbers in the file, sparse */
static const struct { int type; Number number; const char *name; } types[] = {
  { ncclInt8, I8, "int8" }, { ncclUint8, U8, "uint8" }, { ncclInt32, I32, "int32" },
  { ncclInt64, I64, "int64" }, { ncclFloat16, F16, "float16" }, { ncclFloat32, F32, "float32" },
  { ncclFloat64, F64, "float64" }, { ncclBfloat16, BF16, "bfloat16" },
};

bool find_number(int type, Number *out)
{
  for (auto &t : types)
    if (t.type == type) return *out = t.number, true;
  return false;
}

static Number type_of(const Collective &c)
{
  Number t = F32;
  find_number(c.type, &t);
  return t;
}

std::string describe_collective(const Collective &c)
{
  static const char *const ops[] = { "sum", "product", "maximum", "minimum", "mean" };
  std::string text = c.kind == SUM ? ops[c.op] : "broadcast from " + std::to_string(c.root);
  text += " of " + std::to_string(c.count) + " ";
  for (auto &t : types)
    if (t.type == c.type) text += t.name;
  return text;
}

static off_t place_of(int rank, uint64_t number)
{
  return (off_t)(((size_t)rank * 2 + number % 2 + 1) * PLACE);
}

/* -- numbers ----------------------------------------------------------------------------------- */

static bool is_whole(Number t) { return t == I8 || t == U8 || t == I32 || t == I64; }

static int64_t get_whole(const void *p, Number t, int64_t i)
{
  return t == I64 ? ((const int64_t *)p)[i] : (int64_t)load_number(p, t, i);
}

static void put_whole(void *p, Number t, int64_t i, int64_t v)
{
  switch (t) {
  case I8: ((int8_t *)p)[i] = (int8_t)v; break;
  case U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
  case I32: ((int32_t *)p)[i] = (int32_t)v; break;
  default: ((int64_t *)p)[i] = v;
  }
}

template <class T> static T join_numbers(T a, T b, int op)
{
  switch (op) {
  case ncclProd: return a * b;
  case ncclMax: return a > b ? a : b;
  case ncclMin: return a < b ? a : b;
  default: return a + b;
  }
}

/* Computes to = to op from; integers wrap. */
static void reduce_piece(void *to, const void *from, Number t, int op, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    if (!is_whole(t))
      store_number(to, t, i, join_numbers(load_number(to, t, i), load_number(from, t, i), op));
    else if (op == ncclSum || op == ncclProd)
      put_whole(to, t, i,
          (int64_t)join_numbers(
              (uint64_t)get_whole(to, t, i), (uint64_t)get_whole(from, t, i), op));
    else
      put_whole(to, t, i, join_numbers(get_whole(to, t, i), get_whole(from, t, i), op));
  }
}

static bool take_piece(const Member &m, const Collective &c, uint64_t number, char *to)
{
  Number t = type_of(c);
  size_t size = size_of(t);
  char piece[1 << 14];
  int64_t most = (int64_t)(sizeof piece / size), n;
  for (int64_t at = 0; at < (int64_t)c.count; at += n) {
    n = (int64_t)c.count - at < most ? (int64_t)c.count - at : most;
    size_t bytes = (size_t)n * size, from = (size_t)at * size;
    for (int k = 0; k < m.size; k++) {
      int r = c.kind == SPREAD ? c.root : (int)((number + (uint64_t)k) % (uint64_t)m.size);
      char *here = k ? piece : to + from;
      if (pread(m.file, here, bytes, place_of(r, number) + (off_t)from) != (ssize_t)bytes)
        return false;
      if (c.kind == SPREAD) break;
      if (k) reduce_piece(to + from, piece, t, c.op, n);
    }
  }
  return true;
}

/* -- ranks ------------------------------------------------------------------------------------- */

static void end_board(Board *b, int code)
{
  int none = 0;
  b->failed.compare_exchange_strong(none, code);
}

static bool is_over(const Member &m) { return m.aborted || m.board->failed; }

/* Notes that a rank has arrived at a collective, and checks that all ranks are at the same one. */
static void note_arrival(const Member &m, const Collective &c, uint64_t number)
{
  Board *b = m.board;
  b->rank[m.rank].call[number % 2] = c;
  b->rank[m.rank].arrived = number + 1;
  for (int r = 0; r < m.size; r++) {
    if (b->rank[r].arrived != number + 1 || b->rank[r].call[number % 2] == c) continue;
    end_board(b, ncclInvalidUsage);
    report_misuse(0, "NCCL", "collective %llu is a %s on rank %d and a %s on rank %d",
        (unsigned long long)number, describe_collective(c).c_str(), m.rank,
        describe_collective(b->rank[r].call[number % 2]).c_str(), r);
    return;
  }
}

static bool are_all_there(const Member &m, uint64_t number)
{
  for (int r = 0; r < m.size; r++)
    if (m.board->rank[r].arrived <= number) return false;
  return true;
}

/* a wait for the other ranks, which fails after find_patience() seconds */
struct Wait {
  std::chrono::steady_clock::time_point since;
  bool began = false;
};
static bool may_take(const Member &m, uint64_t number, Wait *w)
{
  if (is_over(m) || are_all_there(m, number)) return true;
  auto now = std::chrono::steady_clock::now();
  if (!w->began) *w = { now, true };
  if (std::chrono::duration<double>(now - w->since).count() < find_patience()) return false;
  end_board(m.board, ncclSystemError);
  return true;
}

static void put_piece(const Member &m, const Collective &c, uint64_t number, const char *from)
{
  Number t = type_of(c);
  size_t bytes = c.count * size_of(t);
  if (is_over(m)) return;
  if (from && pwrite(m.file, from, bytes, place_of(m.rank, number)) != (ssize_t)bytes)
    return end_board(m.board, ncclSystemError);
  note_arrival(m, c, number);
}

static void take_over(const Member &m, const Collective &c, uint64_t number, char *to)
{
  int code = enter_anywhere("ncclWork", ncclRemoteError);
  if (code) end_board(m.board, code);
  if (!are_all_there(m, number) && m.board->failed == ncclSystemError)
    report_misuse(0, "NCCL",
        "rank %d waits for ever: not all ranks have come to collective %llu, a %s", m.rank,
        (unsigned long long)number, describe_collective(c).c_str());
  if (!is_over(m) && !take_piece(m, c, number, to)) end_board(m.board, ncclSystemError);
  m.board->rank[m.rank].done = number + 1;
}

ncclResult_t start_collective(
    const MemberPtr &m, const Collective &c, const void *from, void *to, CUstream stream)
{
  Number t = type_of(c);
  size_t bytes = c.count * size_of(t);
  bool sends = c.kind == SUM || c.root == m->rank;
  uint64_t number = m->given++;
  std::vector<Region> in, out = { { "the receive buffer", to, bytes, WRITES } };
  if (sends) in.push_back({ "the send buffer", from, bytes, READS });
  auto wait = std::make_shared<Wait>();
  const char *brings = sends ? (const char *)from : nullptr;
  int r = give_when(
      stream, "NCCL", in, [=] { put_piece(*m, c, number, brings); },
      [=] { return is_over(*m) || m->board->rank[m->rank].done == number; });
  if (!r)
    r = give_when(stream, "NCCL", out, [=] { take_over(*m, c, number, (char *)to); },
        [=] { return may_take(*m, number, wait.get()); });
  return r ? ncclUnhandledCudaError : ncclSuccess;
}

}
