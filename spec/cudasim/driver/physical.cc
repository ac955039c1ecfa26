/* physical.cc - virtual memory: reserved address space, pieces of memory, and which piece is mapped
** where. The pieces are parts of one file in memory, so that a piece keeps its contents when it
** moves, and can be mapped twice. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "state.h"

static const size_t GRANULE = 2 << 20;
struct Piece { size_t offset, bytes; int device, maps; bool released; };
struct Mapping { size_t bytes; CUmemGenericAllocationHandle piece; std::set<int> open_to; };
static std::map<CUmemGenericAllocationHandle, Piece> &pieces =
    *new std::map<CUmemGenericAllocationHandle, Piece>;
static std::map<char *, Mapping> &mappings = *new std::map<char *, Mapping>;
static std::map<char *, size_t> &reservations = *new std::map<char *, size_t>;
static std::map<char *, char *> &before_alignment = *new std::map<char *, char *>;
static std::multimap<size_t, size_t> &holes = *new std::multimap<size_t, size_t>;  /* bytes, offset */
static int file = -1;
static size_t file_bytes;

/* -- address space ----------------------------------------------------------------------------- */

API cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t, CUdeviceptr, unsigned long long flags)
{
  ENTER(CONTEXT);
  NEED(out && !flags, CUDA_ERROR_INVALID_VALUE);
  RULE(bytes && bytes % GRANULE == 0, CUDA_ERROR_INVALID_VALUE,
      "%zu bytes are no multiple of the granularity", bytes);
  char *taken = arena_take(bytes + GRANULE);          /* room to align */
  NEED(taken, CUDA_ERROR_OUT_OF_MEMORY);
  char *p = (char *)(((uintptr_t)taken + GRANULE - 1) / GRANULE * GRANULE);
  before_alignment[p] = taken;
  reservations[p] = bytes;
  *out = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}

/* Returns the first mapping that touches the range, or end. */
static std::map<char *, Mapping>::iterator mapping_in(char *p, size_t bytes)
{
  auto at = mappings.upper_bound(p);
  if (at != mappings.begin() && std::prev(at)->first + std::prev(at)->second.bytes > p) --at;
  return at != mappings.end() && at->first < p + bytes ? at : mappings.end();
}

API cuMemAddressFree(CUdeviceptr d, size_t bytes)
{
  ENTER(ENDING);
  char *p = (char *)d;
  auto at = reservations.find(p);
  RULE(at != reservations.end() && at->second == bytes, CUDA_ERROR_INVALID_VALUE,
      "%zu bytes at %p are not what was reserved", bytes, (void *)p);
  RULE(mapping_in(p, bytes) == mappings.end(), CUDA_ERROR_INVALID_VALUE,
      "something is still mapped in the range");
  reservations.erase(at);
  arena_give(before_alignment[p], bytes + GRANULE);
  before_alignment.erase(p);
  return CUDA_SUCCESS;
}

static bool is_reserved(char *p, size_t bytes)
{
  auto at = reservations.upper_bound(p);
  if (at == reservations.begin()) return false;
  --at;
  return p + bytes <= at->first + at->second;
}

/* -- pieces ------------------------------------------------------------------------------------ */

API cuMemGetAllocationGranularity(
    size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags)
{
  ENTER(NOTHING);
  NEED(bytes && prop, CUDA_ERROR_INVALID_VALUE);
  *bytes = GRANULE;
  return CUDA_SUCCESS;
}

/* Finds room in the file: a hole of this size, or its end. Returns false if it cannot grow. */
static bool find_place(size_t bytes, size_t *offset)
{
  auto hole = holes.find(bytes);
  if (hole != holes.end()) {
    *offset = hole->second;
    holes.erase(hole);
    return true;
  }
  if (file < 0) file = (int)memfd_create("cudasim", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)(file_bytes + bytes))) return false;
  *offset = file_bytes;
  file_bytes += bytes;
  return true;
}

API cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
  ENTER(CONTEXT | UNSAFE);
  static CUmemGenericAllocationHandle names = 0x100;
  NEED(out && prop && !flags, CUDA_ERROR_INVALID_VALUE);
  RULE(bytes && bytes % GRANULE == 0, CUDA_ERROR_INVALID_VALUE,
      "%zu bytes are no multiple of the granularity", bytes);
  RULE(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE, "not of type PINNED");
  RULE(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id >= 0 &&
      prop->location.id < device_count(), CUDA_ERROR_INVALID_DEVICE, "no device for the memory");
  CUctx_st &c = context_of(prop->location.id);
  NEED(bytes <= c.total - c.used, CUDA_ERROR_OUT_OF_MEMORY);
  Piece piece = { 0, bytes, prop->location.id, 0, false };
  NEED(find_place(bytes, &piece.offset), CUDA_ERROR_OUT_OF_MEMORY);
  char *p = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
      (off_t)piece.offset);
  NEED(p != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  spoil_memory(p, bytes);
  munmap(p, bytes);
  c.used += bytes;
  counts.allocations++;
  *out = names++;
  pieces[*out] = piece;
  return CUDA_SUCCESS;
}

static void end_piece(CUmemGenericAllocationHandle name)
{
  const Piece &p = pieces[name];
  if (!p.released || p.maps) return;
  fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p.offset, (off_t)p.bytes);
  holes.insert({ p.bytes, p.offset });
  context_of(p.device).used -= p.bytes;
  pieces.erase(name);
}

API cuMemRelease(CUmemGenericAllocationHandle name)
{
  ENTER(ENDING);
  auto at = pieces.find(name);
  RULE(at != pieces.end() && !at->second.released, CUDA_ERROR_INVALID_VALUE,
      "not a handle of cuMemCreate, or released before");
  at->second.released = true;
  end_piece(name);
  return CUDA_SUCCESS;
}

/* -- mapping ----------------------------------------------------------------------------------- */

API cuMemMap(CUdeviceptr d, size_t bytes, size_t offset, CUmemGenericAllocationHandle name,
    unsigned long long flags)
{
  ENTER(CONTEXT);
  char *p = (char *)d;
  auto piece = pieces.find(name);
  NEED(!offset && !flags, CUDA_ERROR_INVALID_VALUE);
  RULE(piece != pieces.end() && !piece->second.released && piece->second.bytes == bytes,
      CUDA_ERROR_INVALID_VALUE, "not a handle of cuMemCreate with %zu bytes", bytes);
  RULE(is_reserved(p, bytes), CUDA_ERROR_INVALID_VALUE, "the range is not reserved");
  RULE(mapping_in(p, bytes) == mappings.end(), CUDA_ERROR_INVALID_VALUE,
      "something is mapped in the range");
  void *at = mmap(p, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, (off_t)piece->second.offset);
  NEED(at == p, CUDA_ERROR_OUT_OF_MEMORY);
  piece->second.maps++;
  mappings[p] = { bytes, name, {} };
  return CUDA_SUCCESS;
}

static CUresult set_access(char *p, Mapping &m, const CUmemAccessDesc &a)
{
  int owner = pieces[m.piece].device, who = a.location.id;
  RULE(a.location.type == CU_MEM_LOCATION_TYPE_DEVICE && who >= 0 && who < device_count(),
      CUDA_ERROR_INVALID_DEVICE, "access for no device");
  RULE(who == owner || devices_are_peers(), CUDA_ERROR_INVALID_DEVICE,
      "device %d cannot reach memory of device %d", who, owner);
  RULE(a.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_NOT_SUPPORTED,
      "access that is not for reading and writing");
  if (m.open_to.empty()) {
    mprotect(p, m.bytes, PROT_READ | PROT_WRITE);
    range_add(p, m.bytes, owner);
  }
  m.open_to.insert(who);
  return CUDA_SUCCESS;
}

API cuMemSetAccess(CUdeviceptr d, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
  ENTER(CONTEXT);
  char *p = (char *)d, *end = p + bytes;
  NEED(access && n, CUDA_ERROR_INVALID_VALUE);
  for (auto at = mappings.find(p); p < end; at = mappings.find(p)) {
    RULE(at != mappings.end(), CUDA_ERROR_INVALID_VALUE, "nothing is mapped at %p", (void *)p);
    for (size_t i = 0; i < n; i++)
      if (CUresult r = set_access(p, at->second, access[i])) return r;
    p += at->second.bytes;
  }
  return CUDA_SUCCESS;
}

bool device_reaches(int device, const void *p)
{
  int owner = range_device(p);
  auto at = mapping_in((char *)p, 1);
  if (owner == device) return true;
  return at == mappings.end() ? context_of(device).peers.count(owner) : at->second.open_to.count(device);
}

API cuMemUnmap(CUdeviceptr d, size_t bytes)
{
  ENTER(ENDING);
  char *p = (char *)d, *end = p + bytes;
  for (int i = 0; i < device_count(); i++) queue_wait_all(call.lock, i);
  for (auto at = mappings.find(p); p < end; at = mappings.find(p)) {
    RULE(at != mappings.end() && p + at->second.bytes <= end, CUDA_ERROR_INVALID_VALUE,
        "the range does not hold whole mappings");
    Mapping m = at->second;
    if (!m.open_to.empty())
      range_remove(p);
    else
      mmap(p, m.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    mappings.erase(at);
    pieces[m.piece].maps--;
    end_piece(m.piece);
    p += m.bytes;
  }
  return CUDA_SUCCESS;
}

size_t live_pieces() { return pieces.size(); }
size_t live_reservations() { return reservations.size(); }
