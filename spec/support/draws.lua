-- Prints a checksum of the numbers that every sampler draws under one seed;
-- spec/operators/sampler_spec.lua compares runs with different numbers of threads.
package.path = "./?.lua;" .. package.path
local ty = require "tycho"
local arrays = require "spec.support.arrays"

local N = 300000                                          -- enough that all threads take part
local LAWS = {
  uniform = {}, normal = {}, gamma = {alpha = 0.5}, exponential = {}, poisson = {lam = 20},
  negative_binomial = {k = 3, p = 0.25}, generalized_negative_binomial = {},
}
local P = {
  uniform = {0, 1}, normal = {0, 1}, gamma = {0.5, 2}, exponential = {2}, poisson = {3},
  negative_binomial = {3, 0.25}, generalized_negative_binomial = {2, 0.5},
}

local function show(name, x) print(name, arrays.sha256(arrays.bytes(x):sub(-40000))) end

local names = {}
for name in pairs(LAWS) do names[#names + 1] = name end
table.sort(names)
ty.random.seed(17)
for _, name in ipairs(names) do
  local options, inputs = {shape = {N}}, {shape = {N / 100}}
  for k, v in pairs(LAWS[name]) do options[k] = v end
  for i, v in ipairs(P[name]) do inputs[i] = ty.nd.full({100}, v) end
  show("_random_" .. name, ty.nd["_random_" .. name](options))
  options.shape, options[1] = nil, ty.nd.zeros({N}, {dtype = "float64"})
  show("_random_" .. name .. "_like", ty.nd["_random_" .. name .. "_like"](options))
  show("_sample_" .. name, ty.nd["_sample_" .. name](inputs))
end
show("_random_randint", ty.nd._random_randint{low = -9, high = 9, shape = {N}})
show("_sample_multinomial", ty.nd._sample_multinomial{ty.nd.array{0.25, 0.5, 0.25}, shape = {N}})
show("_sample_unique_zipfian",
  ty.nd._sample_unique_zipfian{range_max = 1000, shape = {3000, 10}}[1])
show("_shuffle", ty.nd._shuffle{ty.nd._arange{start = 0, stop = N}})
show("Dropout", ty.nd.Dropout{ty.nd.ones{N}, mode = "always"})
show("LeakyReLU",
  ty.nd.LeakyReLU{ty.nd._random_normal{shape = {100, N / 100}}, act_type = "rrelu"}[1])
