--- Learns to balance a pole on a cart by the gradient of its policy (REINFORCE), in `ty.gluon`.
--
--   tycho scripts/cartpole_gluon.lua                 a few seconds
--   tycho scripts/cartpole_gluon.lua --worlds 32 --rate 0.005 --show
--   tycho scripts/cartpole_gluon.lua --help
--
-- A cart on a rail is pushed left or right, fifty times a second. An episode ends when the pole
-- leans by 12 degrees, the cart has left the rail, or after 500 pushes. Several episodes run side
-- by side, so that one call of the network is for all of them.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"

local autograd, gluon, nd, F = ty.autograd, ty.gluon, ty.nd, ty.F
local nn = gluon.nn

local parser = common.parser("Learns to balance a pole on a cart by the gradient of its policy.")
common.count(parser, "--epochs", "largest number of updates of the policy", 150)
common.count(parser, "--worlds", "episodes of an update, side by side", 16)
common.count(parser, "--hidden", "units of the policy's layer", 64)
common.number(parser, "--rate", "learning rate", 0.01, 0)
common.number(parser, "--discount", "discount of rewards per push", 0.99, 0, 1)
common.number(parser, "--enough", "mean pushes at which the training ends", 490, 1)
common.count(parser, "--seed", "seed of weights and episodes", 1, 0)
parser:flag("--show", "draw an episode of the learned policy in the terminal")
common.gpus(parser, common.ONE_GPU)
common.options(parser)
local options = common.parse(parser, {enough = 150, epochs = 60})
local device = common.device(parser, options)

-- The world ---------------------------------------------------------------------------------------

local MOST = 500                                          -- pushes of a walk
local GRAVITY, FORCE, SECONDS = 9.8, 10, 0.02
local CART, POLE, HALF = 1, 0.1, 0.5                      -- masses in kg, half the length in m
local RAIL, LEAN = 2.4, math.rad(12)                      -- where a walk is over

-- Returns the state after a push. A state is {position, speed, angle, speed of the angle}.
local function pushed(s, direction)
  local sin, cos = math.sin(s[3]), math.cos(s[3])
  local pull = (direction * FORCE + POLE * HALF * s[4] ^ 2 * sin) / (CART + POLE)
  local turn = (GRAVITY * sin - cos * pull) / (HALF * (4 / 3 - POLE * cos ^ 2 / (CART + POLE)))
  local speed = pull - POLE * HALF * turn * cos / (CART + POLE)
  return {s[1] + SECONDS * s[2], s[2] + SECONDS * speed, s[3] + SECONDS * s[4],
    s[4] + SECONDS * turn}
end

local function is_over(s)
  return math.abs(s[1]) > RAIL or math.abs(s[3]) > LEAN
end

-- Returns states near the middle, one per world.
local function beginning()
  return nd.random.uniform(-0.05, 0.05, {shape = {options.worlds, 4}}):totable()
end

-- Policy ------------------------------------------------------------------------------------------

local policy = nn.HybridSequential{nn.Dense(options.hidden, "relu"), nn.Dense(2)}
ty.random.seed(options.seed)
policy:initialize{init = ty.init.Xavier(), ctx = device}
policy:hybridize()
local trainer = gluon.Trainer(policy:collect_params(), "adam", {learning_rate = options.rate})

-- Returns the action in each state: drawn with the policy's probabilities, or the likelier one.
local function choose(states, greedy)
  local odds = nd.softmax(policy(nd.array(states, {ctx = device})))
  return (greedy and odds:argmax{axis = 1} or nd.random.multinomial(odds)):totable()
end

-- Runs all worlds to the end of their episodes. `seen` gets a row per push: world, state, action,
-- and `at`, the pushes before it. Returns the mean number of pushes, and the number of each world.
local function walk(seen, greedy)
  local states, open, lengths, pushes = beginning(), {}, {}, 0
  for i = 1, options.worlds do
    open[i], lengths[i] = i, 0
  end
  while #open > 0 do
    local actions, still = choose(states, greedy), {}
    for _, i in ipairs(open) do
      table.insert(seen, {world = i, state = states[i], action = actions[i], at = lengths[i]})
      states[i] = pushed(states[i], 2 * actions[i] - 1)
      lengths[i], pushes = lengths[i] + 1, pushes + 1
      if not is_over(states[i]) and lengths[i] < MOST then
        still[#still + 1] = i
      end
    end
    open = still
  end
  return pushes / options.worlds, lengths
end

-- Returns the normalised return of each push: the discounted pushes from there to the end, minus
-- their mean, divided by their standard deviation.
local function compute_worth(seen, lengths)
  local worth, sum, squares = {}, 0, 0
  for n, row in ipairs(seen) do
    local left = lengths[row.world] - row.at
    worth[n] = options.discount < 1 and (1 - options.discount ^ left) / (1 - options.discount)
      or left
    sum, squares = sum + worth[n], squares + worth[n] ^ 2
  end
  local mean = sum / #worth
  local spread = math.sqrt(math.max(0, squares / #worth - mean ^ 2)) + 1e-6
  for n, w in ipairs(worth) do
    worth[n] = (w - mean) / spread
  end
  return worth
end

-- Updates the policy: actions with a better return than average become more likely.
local function learn(seen, lengths)
  local states, actions = {}, {}
  for n, row in ipairs(seen) do
    states[n], actions[n] = row.state, row.action
  end
  local x, taken = nd.array(states, {ctx = device}), nd.array(actions, {ctx = device})
  local worth = nd.array(compute_worth(seen, lengths), {ctx = device})
  local loss = autograd.record(function()
    return -(F.pick(F.log_softmax(policy(x)), taken) * worth)
  end)
  loss:backward()
  trainer:step(#seen)
end

-- Training ----------------------------------------------------------------------------------------

local WIDTH = 60                                          -- columns of a drawn rail

local function show()
  local seen = {}
  walk(seen, true)
  for _, row in ipairs(seen) do
    if row.world == 1 and row.at % 25 == 0 then
      local at = math.floor((row.state[1] / RAIL + 1) / 2 * WIDTH + 0.5)
      local sign = math.abs(row.state[3]) < 0.01 and "|" or row.state[3] < 0 and "\\" or "/"
      print(("%s%s"):format((" "):rep(at), sign))
    end
  end
end

local log, update, walks = common.log(options), 0, 0
local mean, lengths
repeat
  local seen, started = {}, ty.callback.clock()
  mean, lengths = walk(seen)
  if mean < options.enough then
    learn(seen, lengths)
  end
  log:epoch{epoch = update, pushes = mean, seconds = ty.callback.clock() - started}
  ty.log:info(("Update[%d] %.1f pushes"):format(update, mean))
  update, walks = update + 1, walks + options.worlds
until mean >= options.enough or update >= options.epochs
log:close()
if options.show then
  show()
end
print(("%.1f of %d pushes, %d walks were needed to learn it"):format(walk({}, true), MOST, walks))
