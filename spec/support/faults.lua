-- Recorded results that are faults of the reference: its result, and why the engine's differs.
-- Keyed by topic, case and step (from 0); such a step is not compared. Each is shown as skipped,
-- with its reason.

local faults = {
  executor = {
    bind_add = { [7] = "add on x + y: the reference copies x's gradient after adding to it, \z
      so y gets x's old contents as well" },
    monitor_many = { [5] = "from the second of nine contributions on the reference reports the \z
      sum so far under the name of the part" },
    graph_reuse = {
      [7] = "second backward after one forward: the reference reads activations that its first \z
        backward has overwritten",
      [15] = "second backward after one forward: the reference reads activations that its first \z
        backward has overwritten",
    },
  },
  symbols = {
    is_losses = { [43] =
      "the reference cannot infer the label of softmax_cross_entropy and refuses; ours is (4,)" },
    convnet = { [32] = "the reference overwrites a wrong shape given for a vector of BatchNorm; \z
      ours is a shape error" },
    is_concat = {
      [6] = "the reference counts an unknown size as 0 in the sum of a Concat and refuses; (2, \z
        15) = (2, 10) + (2, ?) gives (2, 5)",
      [7] = "the reference counts an unknown size as 0 in the sum of a Concat",
    },
  },
  viz = {
    summary_mlp_plain = { text = "without shapes the reference counts wrongly; ours is an error" },
    summary_cnn_plain = { text = "without shapes the reference counts wrongly; ours is an error" },
    summary_emb_plain = { text = "without shapes the reference counts wrongly; ours is an error" },
    summary_lstm_plain = { text = "without shapes the reference counts wrongly; ours is an error" },
    summary_two_plain = { text = "without shapes the reference counts wrongly; ours is an error" },
    summary_conv1d_plain = { text =
      "without shapes the reference counts wrongly; ours is an error" },
    summary_cnn_shape = { counts = "the reference counts no parameters of a Deconvolution" },
    summary_emb_shape = { counts =
      "the reference counts a product after a SliceChannel without its inputs" },
    summary_lstm_shape = { counts =
      "the reference counts shared weights at each reader, and products without their inputs" },
  },
  networks = {
    seq2seq_attention = { training = "encoder gradients: \z
      central differences of the recorded network agree with ours, not with these" },
  },
}

--- Returns the reason why a step is not compared; nil if it is compared.
function faults.of(topic, case, step)
  return faults[topic] and faults[topic][case] and faults[topic][case][step]
end

--- Calls f(name, reason) for each fault.
function faults.each(f)
  for topic, cases in pairs(faults) do
    for case, steps in pairs(type(cases) == "table" and cases or {}) do
      for step, reason in pairs(steps) do
        f(("%s %s, step %s"):format(topic, case, step), reason)
      end
    end
  end
end

return faults
