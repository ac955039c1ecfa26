// fault.cuh - reports a bad matrix, row of parameters, label, index or length to the host (struct
// cuda_fault). Only the first report is kept until the host has read it.
#pragma once
enum fault_kind { BAD_MATRIX, BAD_PARAMETERS, BAD_LABEL, BAD_ROW, BAD_LENGTH };
struct device_fault { i32 taken, axis; i64 index, position, low, high, op, what; };

// Reports an index outside low .. high - 1. axis: the axis that is indexed, -1: no axis. what: the
// address of a text in host memory; then axis is a fault_kind.
FN void report_index(device_fault *fault, i64 op, i64 index, i64 position, i64 low, i64 high,
    i32 axis, i64 what = 0)
{
  if (atomicCAS(&fault->taken, 0, 1)) return;
  fault->op = op;
  fault->what = what;
  fault->axis = axis;
  fault->index = index;
  fault->position = position;
  fault->low = low;
  fault->high = high;
}

FN void report_fault(device_fault *fault, i64 op, i64 what, i64 index, fault_kind kind)
{
  report_index(fault, op, index, 0, 0, 0, kind, what);
}
