// fault.cuh - what is found wrong with a matrix, a row of parameters, or a label, for the host
// (struct cuda_fault): the first finding.
#pragma once
enum fault_kind { BAD_MATRIX, BAD_PARAMETERS, BAD_LABEL };
struct device_fault { i32 taken, axis; i64 index, position, low, high, op, what; };
FN void tell(device_fault *fault, i64 op, i64 what, i64 index, fault_kind kind)
{
  if (atomicCAS(&fault->taken, 0, 1)) return;
  fault->op = op;
  fault->what = what;
  fault->index = index;
  fault->axis = kind;
}
// A label that is not one of so many classes; what: which others are allowed.
FN void tell_label(device_fault *fault, i64 op, i64 what, i64 label, i64 position, i64 classes)
{
  if (atomicCAS(&fault->taken, 0, 1)) return;
  fault->op = op;
  fault->what = what;
  fault->index = label;
  fault->axis = BAD_LABEL;
  fault->position = position;
  fault->high = classes;
}
