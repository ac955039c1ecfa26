# Files that a rock compiles together: written by `make units`, checked by `make check-units`. A file that is in
# no unit is compiled alone.

UNIT_NAMES += pass_1
UNIT_pass_1 = \
  native/pass/accumulate.c \
  native/pass/attention.c \
  native/pass/batch_weight_gradients.c \
  native/pass/control_bodies.c \
  native/pass/control_flow.c \
  native/pass/device_placement.c \
  native/pass/epilogue.c \
  native/pass/extract.c \
  native/pass/fold_batchnorm.c \
  native/pass/fuse.c \
  native/pass/gradient.c \
  native/pass/group_weights.c \
  native/pass/layout.c \
  native/pass/liveness.c \
  native/pass/memory_plan.c \
  native/pass/memory_verify.c \
  native/pass/parts.c \
  native/pass/passes.c \
  native/pass/pointwise_programs.c \
  native/pass/program.c \
  native/pass/rewrite.c

UNIT_NAMES += operators_4
UNIT_operators_4 = \
  native/operators/elementwise/scalar.c \
  native/operators/index/scatter.c \
  native/operators/nn/convolution_winograd.c \
  native/operators/nn/softmax.c \
  native/operators/optimizer/stochastic_round.c \
  native/operators/quantized/int8_layer.c \
  native/operators/random/choice.c \
  native/operators/reduction/cumsum.c \
  native/operators/shape/cast_storage.c \
  native/operators/shape/create.c \
  native/operators/shape/reshape.c \
  native/operators/shape/transpose.c \
  native/operators/vision/box.c \
  native/operators/vision/correlation.c \
  native/operators/vision/multibox.c \
  native/operators/vision/roi_pooling.c

UNIT_NAMES += operators_1
UNIT_operators_1 = \
  native/operators/all.c \
  native/operators/control/control_flow.c \
  native/operators/control/custom.c \
  native/operators/elementwise/activation.c \
  native/operators/elementwise/add_n.c \
  native/operators/elementwise/binary.c \
  native/operators/elementwise/unary.c \
  native/operators/index/boolean_mask.c \
  native/operators/index/sort.c \
  native/operators/linalg/diagonal.c \
  native/operators/linalg/dot.c \
  native/operators/linalg/factorization.c \
  native/operators/loss/ctc_loss.c \
  native/operators/loss/regression_output.c \
  native/operators/nn/adaptive_pooling.c \
  native/operators/nn/batch_norm.c \
  native/operators/nn/cache_append.c \
  native/operators/nn/embedding.c \
  native/operators/nn/flash_attention_backward.c \
  native/operators/nn/flash_attention_blocks.c \
  native/operators/shape/copy.c

UNIT_NAMES += operators_3
UNIT_operators_3 = \
  native/operators/elementwise/leaky_relu.c \
  native/operators/index/take.c \
  native/operators/nn/convolution_window.c \
  native/operators/nn/im2col.c \
  native/operators/nn/layer_norm.c \
  native/operators/nn/rnn_forward.c \
  native/operators/optimizer/all_finite.c \
  native/operators/optimizer/multi_update.c \
  native/operators/quantized/quantize.c \
  native/operators/shape/broadcast.c \
  native/operators/shape/concat.c \
  native/operators/shape/pad.c \
  native/operators/shape/sequence.c \
  native/operators/vision/image_color.c \
  native/operators/vision/image_file.c \
  native/operators/vision/proposal.c

UNIT_NAMES += operators_2
UNIT_operators_2 = \
  native/operators/elementwise/cast.c \
  native/operators/index/gather_nd.c \
  native/operators/linalg/triangular.c \
  native/operators/loss/hawkes.c \
  native/operators/loss/softmax_output.c \
  native/operators/nn/dropout.c \
  native/operators/nn/instance_norm.c \
  native/operators/nn/linear_loss.c \
  native/operators/nn/pooling.c \
  native/operators/nn/pooling_backward.c \
  native/operators/nn/pooling_forward.c \
  native/operators/nn/pooling_geometry.c \
  native/operators/nn/pooling_run.c \
  native/operators/nn/rnn.c \
  native/operators/nn/rnn_backward.c \
  native/operators/nn/rnn_run.c \
  native/operators/optimizer/update.c \
  native/operators/quantized/arithmetic.c \
  native/operators/quantized/lstm8.c \
  native/operators/shape/crop.c

UNIT_NAMES += kernel_1
UNIT_kernel_1 = \
  native/kernel/attention.c \
  native/kernel/blocked.c \
  native/kernel/conv/conv.c \
  native/kernel/conv/depthwise.c \
  native/kernel/conv/few.c \
  native/kernel/conv/reference.c \
  native/kernel/conv/tiles_weight.c \
  native/kernel/conv/weight.c \
  native/kernel/conv/winograd.c \
  native/kernel/epilogue.c \
  native/kernel/gemm/both_gradients.c \
  native/kernel/gemm/gemm.c \
  native/kernel/gemm/pack.c \
  native/kernel/gemm/types.c \
  native/kernel/openblas.c \
  native/kernel/primitives.c \
  native/kernel/reduce/reduce.c \
  native/kernel/reduce/types.c \
  native/kernel/strided_copy.c \
  native/kernel/vec/vec.c \
  native/kernel/conv/onednn.c

UNIT_NAMES += cuda_1
UNIT_cuda_1 = \
  native/cuda/all.c \
  native/cuda/attention.c \
  native/cuda/boxes.c \
  native/cuda/branches.c \
  native/cuda/cache.c \
  native/cuda/choice.c \
  native/cuda/collective.c \
  native/cuda/context.c \
  native/cuda/convert.c \
  native/cuda/convolve.c \
  native/cuda/correlation.c \
  native/cuda/counting.c \
  native/cuda/decoding.c \
  native/cuda/fault.c \
  native/cuda/flash_attention.c \
  native/cuda/fourier.c \
  native/cuda/graph.c \
  native/cuda/images.c \
  native/cuda/levels.c \
  native/cuda/lstm8.c \
  native/cuda/random.c \
  native/cuda/recurrent_forward.c \
  native/cuda/regions.c \
  native/cuda/row.c \
  native/cuda/send.c \
  native/cuda/sequences.c \
  native/cuda/softmax.c \
  native/cuda/stamps.c \
  native/cuda/tuning.c \
  native/cuda/turn.c \
  native/cuda/unfolding.c \
  native/cuda/updates.c

UNIT_NAMES += exec_1
UNIT_exec_1 = \
  native/exec/access.c \
  native/exec/bind.c \
  native/exec/bindings.c \
  native/exec/budget.c \
  native/exec/check.c \
  native/exec/graph.c \
  native/exec/object.c \
  native/exec/print.c \
  native/exec/profile.c \
  native/exec/query.c \
  native/exec/replay.c \
  native/exec/ring.c \
  native/exec/routes.c \
  native/exec/run.c \
  native/exec/state.c \
  native/exec/submit.c \
  native/exec/variant.c \
  native/exec/walk.c

UNIT_NAMES += device_1
UNIT_device_1 = \
  native/device/allocate.c \
  native/device/blocks.c \
  native/device/cpu.c \
  native/device/device.c \
  native/device/failures.c \
  native/device/kinds.c \
  native/device/overtaking.c \
  native/device/passing.c \
  native/device/platform.c \
  native/device/pool.c \
  native/device/profile.c \
  native/device/queue.c \
  native/device/storage.c \
  native/device/tickets.c \
  native/device/timing.c

UNIT_NAMES += operators_5
UNIT_operators_5 = \
  native/operators/linalg/count_sketch.c \
  native/operators/random/pdf.c \
  native/operators/reduction/reduce.c \
  native/operators/shape/shape_array.c \
  native/operators/shape/slice.c \
  native/operators/vision/psroi_pooling.c \
  native/operators/nn/convolution_onednn.c

UNIT_NAMES += io_1
UNIT_io_1 = \
  native/io/augment.c \
  native/io/folder.c \
  native/io/idx.c \
  native/io/inflate.c \
  native/io/iter.c \
  native/io/loader.c \
  native/io/record_file.c \
  native/io/source.c \
  native/io/table.c \
  native/io/wire.c \
  native/io/workspace.c

UNIT_NAMES += base_1
UNIT_base_1 = \
  native/base/atomic_file.c \
  native/base/convert.c \
  native/base/cpu.c \
  native/base/dtype.c \
  native/base/env.c \
  native/base/error.c \
  native/base/failure.c \
  native/base/file_kind.c \
  native/base/folder.c \
  native/base/gate.c \
  native/base/interrupt.c \
  native/base/json.c \
  native/base/memory.c \
  native/base/names.c \
  native/base/number.c \
  native/base/precision.c \
  native/base/small.c \
  native/base/stream_copy.c \
  native/base/system.c \
  native/base/team.c \
  native/base/text.c \
  native/base/version.c \
  native/base/whole_file.c

UNIT_NAMES += cuda_2
UNIT_cuda_2 = \
  native/cuda/compile.c \
  native/cuda/ctc.c \
  native/cuda/device.c \
  native/cuda/diagonals.c \
  native/cuda/linear_cross_entropy.c \
  native/cuda/load.c \
  native/cuda/moves.c \
  native/cuda/norms.c \
  native/cuda/recurrent.c \
  native/cuda/rnn.c

UNIT_NAMES += pass_2
UNIT_pass_2 = \
  native/pass/infer.c \
  native/pass/memory_fit.c \
  native/pass/rewrites.c \
  native/pass/schedule.c \
  native/pass/segments.c \
  native/pass/select.c \
  native/pass/states.c \
  native/pass/uses.c \
  native/pass/values.c \
  native/pass/views.c \
  native/pass/weight_casts.c

UNIT_NAMES += lazy_1
UNIT_lazy_1 = \
  native/lazy/ahead.c \
  native/lazy/backlog.c \
  native/lazy/backward.c \
  native/lazy/build.c \
  native/lazy/call.c \
  native/lazy/flush.c \
  native/lazy/kept.c \
  native/lazy/late.c \
  native/lazy/numbers.c \
  native/lazy/recording.c \
  native/lazy/steps.c

UNIT_NAMES += tensor_1
UNIT_tensor_1 = \
  native/tensor/file_arrays.c \
  native/tensor/file_encodings.c \
  native/tensor/named_arrays.c \
  native/tensor/params.c \
  native/tensor/tensor.c

UNIT_NAMES += pointwise_1
UNIT_pointwise_1 = \
  native/pointwise/build.c \
  native/pointwise/parse.c \
  native/pointwise/run.c \
  native/pointwise/sum_to.c \
  native/pointwise/table.c

UNIT_NAMES += comm_1
UNIT_comm_1 = \
  native/comm/comm.c \
  native/comm/devices.c \
  native/comm/mpi.c \
  native/comm/siblings.c \
  native/comm/sum.c \
  native/comm/threads.c

UNIT_NAMES += cuda_3
UNIT_cuda_3 = \
  native/cuda/deformable.c \
  native/cuda/dnn.c \
  native/cuda/losses.c \
  native/cuda/quantized.c \
  native/cuda/recurrent_backward.c \
  native/cuda/sorting.c

UNIT_NAMES += operators_7
UNIT_operators_7 = \
  native/operators/nn/attention.c \
  native/operators/vision/deformable_convolution.c \
  native/operators/vision/image.c \
  native/operators/vision/spatial_transformer.c

UNIT_NAMES += graph_1
UNIT_graph_1 = \
  native/graph/graph.c \
  native/graph/symbol_node.c \
  native/graph/symbol_read.c \
  native/graph/symbol_upgrade.c

UNIT_NAMES += io_2
UNIT_io_2 = \
  native/io/det_augment.c \
  native/io/image_record.c \
  native/io/label_list.c \
  native/io/stream.c

UNIT_NAMES += cuda_4
UNIT_cuda_4 = \
  native/cuda/densities.c \
  native/cuda/family.c \
  native/cuda/matrices.c \
  native/cuda/rows.c

UNIT_NAMES += op_1
UNIT_op_1 = \
  native/op/dispatch.c \
  native/op/formula_cuda.c \
  native/op/param.c \
  native/op/registry.c

UNIT_NAMES += operators_6
UNIT_operators_6 = \
  native/operators/linalg/fft.c \
  native/operators/quantized/integer_dot.c \
  native/operators/random/sample.c \
  native/operators/vision/roi_align.c \
  native/operators/vision/upsampling.c

UNIT_NAMES += kernel_2
UNIT_kernel_2 = \
  native/kernel/conv/levels.c \
  native/kernel/conv/winograd_weight.c \
  native/kernel/gemm/library.c \
  native/kernel/lapack.c \
  native/kernel/onednn_interface.c

UNIT_NAMES += lazy_2
UNIT_lazy_2 = \
  native/lazy/history.c \
  native/lazy/trace.c

UNIT_NAMES += op_3
UNIT_op_3 = \
  native/op/half_rows.c \
  native/op/infer.c \
  native/op/signature.c

UNIT_NAMES += op_2
UNIT_op_2 = \
  native/op/formula.c \
  native/op/user_formula.c

UNIT_NAMES += io_3
UNIT_io_3 = \
  native/io/raw.c \
  native/io/record.c \
  native/io/transform.c

UNIT_NAMES += cuda_7
UNIT_cuda_7 = \
  native/cuda/range.c \
  native/cuda/reductions.c \
  native/cuda/resampling.c

UNIT_NAMES += image_1
UNIT_image_1 = \
  native/image/codec.c \
  native/image/color.c \
  native/image/jpeg.c \
  native/image/resize.c \
  native/image/warp.c

UNIT_NAMES += cuda_8
UNIT_cuda_8 = \
  native/cuda/resizing.c \
  native/cuda/solve.c

UNIT_NAMES += cuda_5
UNIT_cuda_5 = \
  native/cuda/hawkes.c \
  native/cuda/pointwise.c \
  native/cuda/pooling.c

UNIT_NAMES += imperative_1
UNIT_imperative_1 = \
  native/imperative/call.c \
  native/imperative/call_cache.c

UNIT_NAMES += cuda_6
UNIT_cuda_6 = \
  native/cuda/product.c \
  native/cuda/proposal.c

UNIT_NAMES += cuda_9
UNIT_cuda_9 = \
  native/cuda/sampling.c \
  native/cuda/trial.c

UNIT_NAMES += kernel_3
UNIT_kernel_3 = \
  native/kernel/conv/rounded.c \
  native/kernel/onednn.c

