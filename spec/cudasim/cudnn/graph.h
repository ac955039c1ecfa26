/* graph.h - what the files of cuDNN's stand-in share: descriptors as bags of attributes, and the
** tensors and operations that a plan walks. */
#pragma once
#include <map>
#include <memory>
#include "../library/library.h"
#include "../library/numbers.h"
#include "abi.h"

#define API extern "C" __attribute__((visibility("default"))) cudnnStatus_t

/* -- descriptors (descriptors.cc) -------------------------------------------------------------- */

struct Bag {
  cudnnBackendDescriptorType_t kind;
  bool done = false;                                  /* finalized */
  std::map<int, std::string> given;
  template <class T> std::vector<T> all(int attribute) const
  {
    auto at = given.find(attribute);
    std::vector<T> x(at == given.end() ? 0 : at->second.size() / sizeof(T));
    if (!x.empty()) memcpy((void *)x.data(), at->second.data(), x.size() * sizeof(T));
    return x;
  }
  template <class T> T one(int attribute, T otherwise = T()) const
  {
    auto at = given.find(attribute);
    if (at != given.end()) memcpy((void *)&otherwise, at->second.data(), sizeof otherwise);
    return otherwise;
  }
  Bag *bag(int attribute) const { return one<Bag *>(attribute); }
  bool has(int attribute) const { return given.count(attribute) != 0; }
  template <class T> void put(int attribute, T value)
  {
    given[attribute].assign((const char *)&value, sizeof value);
  }
};
bool is_live(const Bag *b);
/* Returns the type of a descriptor's attribute; -1: no program sets it. */
int attribute_type(const Bag *b, int attribute);
/* Returns the bytes of one element of a type of attributes. */
size_t attribute_bytes(int type);
void keep_graph(const Bag *graph);                    /* keep.cc */
/* Returns code and keeps the reason for cudnnGetLastErrorString. Is no finding, since a program may
** ask. */
cudnnStatus_t refuse_bag(cudnnStatus_t code, const std::string &why);

/* -- operations (operations.cc) ---------------------------------------------------------------- */

bool find_number(int64_t type, cudasim::Number *out);
/* what an operation of a graph reads and writes, by its attributes. adds: to what it writes */
struct Ports { int reads[3], writes; bool adds; };
Ports make_ports(const Bag *operation);
/* Checks one operation. Returns NULL, or the error. */
const char *check_operation(const Bag *operation);

/* a tensor in memory: lengths, strides in elements, type, address (memory of the run if virtual) */
struct View {
  std::vector<int64_t> n, s;
  cudasim::Number type;
  char *p;
  int64_t count() const;
  int64_t at(const std::vector<int64_t> &i) const;    /* an axis of length 1 is repeated */
};
View make_view(const Bag *tensor, char *p);

/* What an engine reports of itself. One with tensor cores makes products of float32 from 10 bits of
** their fractions (TF32); one that is not deterministic gives sums that differ from run to run.
** way: number among the engines that differ only in time. */
struct Engine { int64_t workspace; bool tensor_cores, any_order; int way; };
const int64_t ENGINES = 5;
const Engine &find_engine(int64_t index);
void run_operation(
    const Bag *operation, const std::map<const Bag *, View> &views, const Engine &engine);
