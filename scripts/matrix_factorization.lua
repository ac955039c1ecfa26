--- Learns to predict ratings: a vector for each user and item, whose product is the rating.
--
--   tycho scripts/matrix_factorization.lua             makes up users, items and ratings with noise
--   tycho scripts/matrix_factorization.lua --data ml-100k/u.data  lines of user, item, rating
--                                                                 (MovieLens)
--   tycho scripts/matrix_factorization.lua --checkpoint run/f --resume --epochs 20
--   tycho scripts/matrix_factorization.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ffi = require "ffi"
local files = require "tycho.core.files"
local ty = require "tycho"
local common = require "common"

local parser = common.parser("Learns a vector for each user and item from ratings.")
parser:option("--data",
  "file with a user, an item and a rating in each line; default: ratings made up here")
common.count(parser, "--users", "number of generated users", 600)
common.count(parser, "--items", "number of generated items", 400)
common.count(parser, "--ratings", "number of generated ratings", 60000)
common.count(parser, "--size", "size of a vector", 8)
common.number(parser, "--wd", "weight decay: keeps the vectors of rare users short", "0.00001", 0)
common.count(parser, "--advise", "users to print recommendations for", 3, 0)
common.training(parser, {epochs = 12, batch = 200, rate = 0.01})
local options = common.parse(parser,
  {users = 150, items = 100, ratings = 12000, epochs = 12, batch = 100})

local NOISE = 0.3                        -- deviation of the noise on ratings that are made up


-- Ratings -----------------------------------------------------------------------------------------
-- Three arrays of n: users and items, numbers from 0, and ratings.

local function make_arrays(columns, n)
  local list = {}
  for i, column in ipairs(columns) do
    list[i] = ty.nd.from_pointer(column, {n}, {owner = column}):copy()
  end
  return unpack(list)
end

-- Returns ratings that depend on hidden vectors of three numbers for users and items, around a mean
-- of 3.
local function made_up()
  local n, rank = options.ratings, 3
  local taste = ty.nd.random.normal{shape = {options.users, rank}}
  local kind = ty.nd.random.normal{shape = {options.items, rank}}
  local user = ty.nd.random.randint(0, options.users, {shape = {n}}):astype("float32")
  local item = ty.nd.random.randint(0, options.items, {shape = {n}}):astype("float32")
  local rating = (taste:take(user) * kind:take(item)):sum{axis = 1}
    + ty.nd.random.normal{shape = {n}} * NOISE + 3
  return user, item, rating, options.users, options.items
end

-- Returns the number of a name, in order of first appearance.
local function add_name(known, name)
  if not known[name] then
    known[name], known.n = known.n, known.n + 1
  end
  return known[name]
end

-- Reads ratings and shuffles them, so that the last ones, the test, are not special.
local function read(path)
  local rows = {}
  for line in files.lines(path, "matrix_factorization") do
    local u, i, r = line:match("^%s*([^%s,:]+)[%s,:]+([^%s,:]+)[%s,:]+(%-?[%d.]+)")
    rows[#rows + 1] = r and {u, i, tonumber(r)} or nil
  end
  assert(#rows >= 2 * options.batch, path .. ": too few ratings")
  math.randomseed(options.seed)
  local users, items, n = {n = 0}, {n = 0}, #rows
  local user, item, rating = ffi.new("float[?]", n), ffi.new("float[?]", n), ffi.new("float[?]", n)
  for i = n, 1, -1 do
    local k = math.random(i)
    rows[i], rows[k] = rows[k], rows[i]
    user[i - 1], item[i - 1], rating[i - 1] =
      add_name(users, rows[i][1]), add_name(items, rows[i][2]), rows[i][3]
  end
  user, item, rating = make_arrays({user, item, rating}, n)
  return user, item, rating, users.n, items.n
end


-- The network -------------------------------------------------------------------------------------

-- Returns a network: rating = user's vector . item's vector + user's bias + item's bias.
local function network(users, items)
  local function make_table(input, rows, size, name)
    return ty.sym.Embedding{data = input, input_dim = rows, output_dim = size, name = name}
  end
  local user, item = ty.sym.Variable("user"), ty.sym.Variable("item")
  local match = ty.sym.sum{make_table(user, users, options.size, "user_vector")
    * make_table(item, items, options.size, "item_vector"), axis = 1}
  local bias = make_table(user, users, 1, "user_bias") + make_table(item, items, 1, "item_bias")
  local rating = match + ty.sym.Reshape{data = bias, shape = {-1}, name = "bias"}
  return ty.sym.LinearRegressionOutput{data = rating, label = ty.sym.Variable("rating"),
    name = "error"}
end

ty.random.seed(options.seed)
local user, item, rating, users, items
if options.data then
  user, item, rating, users, items = read(options.data)
else
  user, item, rating, users, items = made_up()
end
local n = user:len()
local cut = math.floor(0.9 * n)
local mean = rating:slice_axis{axis = 0, begin = 0, end_ = cut}:mean():asscalar()

local function iterator(from, to, shuffle)
  local function part(x)
    return x:slice_axis{axis = 0, begin = from, end_ = to}
  end
  return ty.io.NDArrayIter{data = {user = part(user), item = part(item)},
    label = {rating = part(rating) - mean}, batch_size = options.batch, shuffle = shuffle}
end

local train, test = iterator(0, cut, true), iterator(cut, n, false)
local module = ty.mod.Module{symbol = network(users, items),
  data_names = {"item", "user"}, label_names = {"rating"}, context = common.devices(options)}
print(("%d ratings of %d items by %d users"):format(n, items, users))
local rmse = common.fit(options, module, {
  train_data = train, eval_data = test, eval_metric = "rmse", initializer = ty.init.Normal(0.1),
  optimizer = "adam",
  optimizer_params = {learning_rate = options.rate, wd = options.wd, rescale_grad = 1},
})


-- Advice ------------------------------------------------------------------------------------------

-- Prints the items with the highest predicted ratings for one user.
local function advise(who)
  local every = ty.nd.arange(0, items)
  local foretold = module:predict(ty.io.NDArrayIter{
    data = {user = ty.nd.full({items}, who), item = every},
    batch_size = options.batch, last_batch_handle = "pad",
  })
  local best = foretold:topk{k = 5, axis = 0}:totable()
  local texts = {}
  for i, k in ipairs(best) do
    texts[i] = ("item %d (%.1f)"):format(k, foretold[k]:asscalar() + mean)
  end
  print(("user %d may like %s"):format(who, table.concat(texts, ", ")))
end

for who = 0, math.min(options.advise, users) - 1 do
  advise(who)
end
local apart = rating:slice_axis{axis = 0, begin = cut, end_ = n} - mean
local plain = math.sqrt(apart:square():mean():asscalar())
print(("error %.4f of ratings that it has not seen; always the mean: %.4f%s"):format(rmse, plain,
  options.data and "" or ("; the noise alone: %.4f"):format(NOISE)))
