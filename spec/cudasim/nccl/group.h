/* group.h - what the files of NCCL's stand-in share: the state of a group of ranks, in a file that
** each of them maps, and the membership of one rank. */
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include "../library/library.h"
#include "../library/numbers.h"
#include "abi.h"

namespace cudasim {

enum { RANKS = 64 };
enum Kind { SUM = 1, SPREAD };
struct Collective {
  int kind, type, op, root;
  uint64_t count;
  bool operator==(const Collective &o) const
  {
    return kind == o.kind && type == o.type && op == o.op && root == o.root && count == o.count;
  }
};
std::string describe_collective(const Collective &c);

/* Collective number n of a rank leaves its numbers in place n % 2 of that rank. */
struct Board {
  std::atomic<int> size, joined, failed;              /* failed: ncclResult_t of the group */
  struct Rank {
    std::atomic<int> joined, aborted, left;
    std::atomic<uint64_t> arrived, done;
    int device;
    pid_t process;
    Collective call[2];
  } rank[RANKS];
};

struct Member {
  Board *board;
  int file, rank, size, device;
  uint64_t given = 0;
  std::atomic<bool> aborted{ false };
  ~Member();
};
typedef std::shared_ptr<Member> MemberPtr;

/* Makes the file of a group; id: its path. Returns false if it cannot be made. */
bool board_new(char id[128]);
/* Maps the file and notes that the rank has joined. Unlinks the file if it is the last one. */
ncclResult_t board_join(const char id[128], int size, int rank, MemberPtr *out);
/* Waits until all ranks have joined. Fails if the group has failed or the patience ends. */
ncclResult_t board_wait(const Member &m);
/* Returns the seconds after which a wait for a rank fails. */
double find_patience();

/* Submits a collective: one entry of the stream that copies the rank's numbers to the file, and one
** that takes the result. */
ncclResult_t start_collective(
    const MemberPtr &m, const Collective &c, const void *from, void *to, CUstream stream);
bool find_number(int type, Number *out);

}
