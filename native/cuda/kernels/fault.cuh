// fault.cuh - what is found wrong with a matrix, for the host (struct cuda_fault): the first finding.
#pragma once
struct matrix_fault { i32 taken, axis; i64 index, position, low, high, op, what; };
FN void tell(matrix_fault *fault, i64 op, i64 what, i64 matrix)
{
  if (atomicCAS(&fault->taken, 0, 1)) return;
  fault->op = op;
  fault->what = what;
  fault->index = matrix;
}
