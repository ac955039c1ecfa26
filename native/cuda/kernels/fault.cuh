// fault.cuh - what is found wrong with a matrix, or with a row of parameters, for the host (struct
// cuda_fault): the first finding.
#pragma once
enum fault_kind { BAD_MATRIX, BAD_PARAMETERS };
struct device_fault { i32 taken, axis; i64 index, position, low, high, op, what; };
FN void tell(device_fault *fault, i64 op, i64 what, i64 index, fault_kind kind)
{
  if (atomicCAS(&fault->taken, 0, 1)) return;
  fault->op = op;
  fault->what = what;
  fault->index = index;
  fault->axis = kind;
}
