/* board.cc - a group's file: made by ncclGetUniqueId, mapped by each rank that joins, unlinked when
** all have joined. */
#include <chrono>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "group.h"

namespace cudasim {

double find_patience()
{
  const char *e = getenv("CUDASIM_PATIENCE");
  return e && *e ? atof(e) : 60;
}

bool board_new(char id[128])
{
  const char *folder = getenv("TMPDIR");
  memset(id, 0, 128);
  if (snprintf(id, 128, "%s/cudasim-nccl-XXXXXX", folder && *folder ? folder : "/tmp") >= 128)
    return false;
  int file = mkstemp(id);
  bool good = file >= 0 && !ftruncate(file, sizeof(Board));
  if (file >= 0) close(file);
  return good;
}

Member::~Member()
{
  munmap(board, sizeof *board);
  close(file);
  count_object("NCCL communicators", -1);
}

static bool takes_a_device_twice(const Board &b, int rank)
{
  for (int r = 0; r < b.size; r++)
    if (r != rank && b.rank[r].joined && b.rank[r].device == b.rank[rank].device) return true;
  return false;
}

ncclResult_t board_join(const char id[128], int size, int rank, MemberPtr *out)
{
  const char *name = "ncclCommInitRank";
  if (size < 1 || size > RANKS || rank < 0 || rank >= size)
    return (ncclResult_t)report_misuse(ncclInvalidArgument, name, "rank %d of %d", rank, size);
  int file = open(id, O_RDWR);
  if (file < 0)
    return (ncclResult_t)report_misuse(
        ncclInvalidArgument, name, "the id is none, or that of a group that is complete");
  Board *b = (Board *)mmap(nullptr, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (b == MAP_FAILED) {
    close(file);
    return ncclSystemError;
  }
  auto m = std::make_shared<Member>();
  count_object("NCCL communicators", 1);
  m->board = b;
  m->file = file;
  m->rank = rank;
  m->size = size;
  m->device = current_device();
  int none = 0;
  if (!b->size.compare_exchange_strong(none, size) && none != size)
    return (ncclResult_t)report_misuse(
        ncclInvalidArgument, name, "%d ranks here, %d elsewhere", size, none);
  b->rank[rank].device = m->device;
  b->rank[rank].process = getpid();
  if (b->rank[rank].joined.exchange(1))
    return (ncclResult_t)report_misuse(ncclInvalidUsage, name, "rank %d joins twice", rank);
  if (takes_a_device_twice(*b, rank)) {
    b->failed = ncclInvalidUsage;
    return (ncclResult_t)report_misuse(
        ncclInvalidUsage, name, "device %d is in the group twice", m->device);
  }
  if (++b->joined == size) unlink(id);
  *out = m;
  return ncclSuccess;
}

ncclResult_t board_wait(const Member &m)
{
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(find_patience());
  while (m.board->joined < m.size) {
    if (m.board->failed) return (ncclResult_t)m.board->failed.load();
    if (std::chrono::steady_clock::now() > until)
      return (ncclResult_t)report_misuse(ncclSystemError, "ncclCommInitRank",
          "rank %d waits for ever: %d of %d ranks have joined (several of one thread need a group)",
          m.rank, m.board->joined.load(), m.size);
    usleep(500);
  }
  return (ncclResult_t)m.board->failed.load();
}

}
