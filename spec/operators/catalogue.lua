--- All operators by tier, by their own names: 1 what most networks are made of, 2 the rest of what
-- symbols are written with, both as the reference has them; 3 what else Tycho has. Of the
-- reference's own third tier that is its old functions of arrays; the rest is sparse storage, the
-- NumPy interface, 8-bit arithmetic of one processor, and other engines' internals.
-- spec/operators/op_spec.lua compares the registry with these lists.

local function words(text)
  local list = {}
  for word in text:gmatch("%S+") do list[#list + 1] = word end
  return list
end

return {
  left_out = {"_CustomFunction", "", ""},  -- the user's own function: a name of Custom here
  words[[
    Activation BatchNorm BlockGrad CTCLoss Cast Concat Convolution Crop Custom Deconvolution
    Dropout Embedding Flatten FullyConnected IdentityAttachKLSparseReg InstanceNorm
    L2Normalization LRN LeakyReLU LinearRegressionOutput LogisticRegressionOutput
    MAERegressionOutput MakeLoss Pooling RNN Reshape SliceChannel SoftmaxActivation
    SoftmaxOutput SpatialTransformer SwapAxis UpSampling _CrossDeviceCopy _CustomFunction
    _NoGradient _arange _copy _copyto _div_scalar _equal _equal_scalar _full _grad_add _greater
    _greater_equal _greater_equal_scalar _greater_scalar _hypot _hypot_scalar
    _identity_with_attr_like_rhs _lesser _lesser_equal _lesser_equal_scalar _lesser_scalar
    _linalg_gemm2 _logical_and _logical_and_scalar _logical_or _logical_or_scalar _logical_xor
    _logical_xor_scalar _maximum _maximum_scalar _minimum _minimum_scalar _minus_scalar _mod
    _mod_scalar _mul_scalar _multi_lamb_update _multi_mp_lamb_update _not_equal
    _not_equal_scalar _ones _plus_scalar _power _power_scalar _random_normal _random_uniform
    _rdiv_scalar _rminus_scalar _rmod_scalar _rnn_param_concat _rpower_scalar _scatter_set_nd
    _slice_assign _slice_assign_scalar _zeros _zeros_without_dtype abs adam_update add_n argmax
    argmax_channel batch_dot batch_take broadcast_add broadcast_div broadcast_equal
    broadcast_greater broadcast_greater_equal broadcast_hypot broadcast_lesser
    broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor
    broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul broadcast_not_equal
    broadcast_power broadcast_sub ceil clip cos dot elemwise_add elemwise_div elemwise_mul
    elemwise_sub exp expand_dims expm1 fix floor ftml_update ftrl_update lamb_update_phase1
    lamb_update_phase2 log log10 log1p log2 log_softmax logical_not make_loss max mean min
    mp_lamb_update_phase1 mp_lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update
    mp_sgd_update multi_lars multi_mp_sgd_mom_update multi_mp_sgd_update multi_sgd_mom_update
    multi_sgd_update multi_sum_sq nag_mom_update negative norm one_hot ones_like pick
    preloaded_multi_mp_sgd_mom_update preloaded_multi_mp_sgd_update
    preloaded_multi_sgd_mom_update preloaded_multi_sgd_update reciprocal relu repeat reverse
    rint rmsprop_update rmspropalex_update round rsqrt sgd_mom_update sgd_update sigmoid sign
    signsgd_update signum_update sin slice slice_axis softmax softmax_cross_entropy sqrt square
    sum take tan tanh tile transpose trunc where zeros_like
  ]],
  words[[
    BatchNorm_v1 BilinearSampler Convolution_v1 Correlation GridGenerator GroupNorm LayerNorm
    Pad Pooling_v1 ROIPooling SVMOutput SequenceLast SequenceMask SequenceReverse _adamw_update
    _cond _contrib_AdaptiveAvgPooling2D _contrib_BatchNormWithReLU _contrib_BilinearResize2D
    _contrib_DeformableConvolution _contrib_DeformablePSROIPooling
    _contrib_ModulatedDeformableConvolution _contrib_MultiBoxDetection _contrib_MultiBoxPrior
    _contrib_MultiBoxTarget _contrib_MultiProposal _contrib_PSROIPooling _contrib_Proposal
    _contrib_ROIAlign _contrib_RROIAlign _contrib_SparseEmbedding _contrib_SyncBatchNorm
    _contrib_allclose _contrib_arange_like _contrib_bipartite_matching _contrib_boolean_mask
    _contrib_box_decode _contrib_box_encode _contrib_box_iou _contrib_box_nms
    _contrib_calibrate_entropy _contrib_count_sketch _contrib_dequantize _contrib_div_sqrt_dim
    _contrib_fft _contrib_getnnz _contrib_gradientmultiplier _contrib_group_adagrad_update
    _contrib_ifft _contrib_index_array _contrib_index_copy _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _contrib_quadratic _contrib_quantize
    _contrib_quantize_asym _contrib_quantize_v2 _contrib_quantized_act _contrib_quantized_batch_norm
    _contrib_quantized_concat _contrib_quantized_conv _contrib_quantized_elemwise_add
    _contrib_quantized_elemwise_mul _contrib_quantized_embedding _contrib_quantized_flatten
    _contrib_quantized_fully_connected _contrib_quantized_pooling _contrib_quantized_rnn
    _contrib_requantize
    _contrib_round_ste _contrib_sign_ste _eye _foreach _histogram _image_adjust_lighting
    _image_crop _image_flip_left_right _image_flip_top_bottom _image_normalize
    _image_random_brightness _image_random_color_jitter _image_random_contrast
    _image_random_flip_left_right _image_random_flip_top_bottom _image_random_hue
    _image_random_lighting _image_random_saturation _image_resize _image_to_tensor _linalg_det
    _linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_gemm _linalg_inverse
    _linalg_makediag _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet
    _linalg_sumlogdiag _linalg_syevd _linalg_syrk _linalg_trmm _linalg_trsm _linspace
    _mp_adamw_update _multi_adamw_update _multi_mp_adamw_update _np_cumsum _random_exponential
    _random_exponential_like _random_gamma _random_gamma_like
    _random_generalized_negative_binomial _random_generalized_negative_binomial_like
    _random_negative_binomial _random_negative_binomial_like _random_normal_like
    _random_pdf_dirichlet _random_pdf_exponential _random_pdf_gamma
    _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial _random_pdf_normal
    _random_pdf_poisson _random_pdf_uniform _random_poisson _random_poisson_like _random_randint
    _random_uniform_like _ravel_multi_index _sample_exponential _sample_gamma
    _sample_generalized_negative_binomial _sample_multinomial _sample_negative_binomial
    _sample_normal _sample_poisson _sample_uniform _sample_unique_zipfian _scatter_elemwise_div
    _scatter_minus_scalar _scatter_plus_scalar _shuffle _sparse_adagrad_update _sparse_retain
    _split_v2 _square_sum _unravel_index _while_loop all_finite amp_cast amp_multicast arccos
    arccosh arcsin arcsinh arctan arctanh argmin argsort broadcast_axis broadcast_like
    broadcast_to cast_storage cbrt col2im cosh degrees depth_to_space diag erf erfinv gamma
    gammaln gather_nd hard_sigmoid im2col khatri_rao moments multi_all_finite nanprod nansum
    prod radians rcbrt reset_arrays reshape_like scatter_nd shape_array sinh size_array
    slice_like smooth_l1 softmin softsign sort space_to_depth squeeze stack topk
  ]],
  words[[
    _contrib_int8_convolution _contrib_int8_fully_connected _contrib_integer_dot
    _contrib_RMSNorm _contrib_attention _contrib_cache_append _contrib_hawkesll _contrib_linear_cross_entropy
    _contrib_rotary_embedding _contrib_round_half_even
    _contrib_scatter_along_axis _contrib_scatter_nd _contrib_stochastic_round _contrib_swiglu _contrib_take_along_axis _cvcopyMakeBorder
    _cvimdecode _cvimread _cvimresize _gate _guard _learn _moving_average _multi_update _npi_fmod _npi_where
    _onehot_encode _scale_gradient _select _set_value
    fill_element_0index
  ]],
}
