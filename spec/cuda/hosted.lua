-- What a GPU still runs on the host, over copies of its operands: spec/cuda/hosted_spec.lua.

return {
  _contrib_MultiProposal = "forward",
  _contrib_Proposal = "forward",
  _contrib_boolean_mask = "forward, gradient",
  _contrib_calibrate_entropy = "forward",
  _cvcopyMakeBorder = "forward",
  _cvimdecode = "forward",
  _cvimread = "forward",
  _cvimresize = "forward",
  _image_adjust_lighting = "forward",
  _image_random_brightness = "forward",
  _image_random_color_jitter = "forward",
  _image_random_contrast = "forward",
  _image_random_flip_left_right = "forward",
  _image_random_flip_top_bottom = "forward",
  _image_random_hue = "forward",
  _image_random_lighting = "forward",
  _image_random_saturation = "forward",
  _image_resize = "forward",
}
