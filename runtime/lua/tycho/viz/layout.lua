--- A layered layout: computes the positions of the boxes of a graph.
--
-- Steps: ranks (a node is below all its inputs), layers (an edge that passes a layer gets a joint
-- in it), order within layers (by medians, keeping the order with the fewest crossings), places
-- (four alignments of each node with the middle one of its neighbours, and the mean of the two
-- middle results). Source: K. Sugiyama et al. 1981; U. Brandes, B. Köpf, Fast and simple horizontal
-- coordinate assignment, 2001.
--
--     local plan = layout.plan{ widths = {90, 90}, height = 40, edges = {{1, 2}} }
--     plan.x[2], plan.y[2]    centre of box 2         plan.width, plan.height   of the picture
--     plan.routes[1]          {{x, y}, ...} from the lower side of box 1 to the upper side of box 2
--
-- Nodes are numbered from 1, and an edge leads from a smaller number to a larger one.
--
-- @module tycho.viz.layout

local pairs = require("tycho.core.iterate").pairs
local tables = require "tycho.core.tables"
local layout = {}

local GAP, RANK_GAP, JOINT = 24, 44, 8   -- pixels: between boxes, between layers, width of a joint
local SWEEPS = 12
local PORT = 16                          -- most distance of edges at a box


-- Ranks and layers --------------------------------------------------------------------------------

-- Returns, for each node, the nodes above it and those below it.
local function neighbours(n, edges)
  local above, below = {}, {}
  for v = 1, n do
    above[v], below[v] = {}, {}
  end
  for _, edge in ipairs(edges) do
    table.insert(below[edge[1]], edge[2])
    table.insert(above[edge[2]], edge[1])
  end
  return above, below
end


-- Returns the layer of each node: the longest path from a source. A source is moved down to the
-- layer above its first reader.
local function ranks(n, above, below)
  local rank = {}
  for v = 1, n do
    rank[v] = 1
    for _, u in ipairs(above[v]) do
      rank[v] = math.max(rank[v], rank[u] + 1)
    end
  end
  for v = 1, n do
    local lowest = math.huge
    for _, w in ipairs(below[v]) do
      lowest = math.min(lowest, rank[w] - 1)
    end
    if #above[v] == 0 and lowest < math.huge then
      rank[v] = lowest
    end
  end
  return rank
end


-- Splits edges so that each joins neighbouring layers; joints are numbered after the boxes. Returns
-- the edges, the chain of nodes of each original edge, and the number of nodes.
local function split_edges(n, edges, rank)
  local short, chains, total = {}, {}, n
  for i, edge in ipairs(edges) do
    local chain = { edge[1] }
    for r = rank[edge[1]] + 1, rank[edge[2]] - 1 do
      total = total + 1
      rank[total] = r
      chain[#chain + 1] = total
    end
    chain[#chain + 1] = edge[2]
    for k = 2, #chain do
      short[#short + 1] = { chain[k - 1], chain[k] }
    end
    chains[i] = chain
  end
  return short, chains, total
end


-- Returns the layers, whose nodes are in the order of a depth-first walk from the top.
local function first_layers(total, rank, below)
  local layers, seen = {}, {}
  local function visit(start)
    local stack = { start }
    while #stack > 0 do
      local v = table.remove(stack)
      if not seen[v] then
        seen[v] = true
        layers[rank[v]] = layers[rank[v]] or {}
        table.insert(layers[rank[v]], v)
        for i = #below[v], 1, -1 do
          stack[#stack + 1] = below[v][i]
        end
      end
    end
  end
  for v = 1, total do
    visit(v)
  end
  for r = 1, table.maxn(layers) do
    layers[r] = layers[r] or {}
  end
  return layers
end


-- Order -------------------------------------------------------------------------------------------

local function positions(layers)
  local at = {}
  for _, layer in ipairs(layers) do
    for i, v in ipairs(layer) do
      at[v] = i
    end
  end
  return at
end


-- Returns the number of crossings among the edges below one layer, which are pairs of edges with
-- ends in opposite order.
local function layer_crossings(layer, below, at)
  local ends, count = {}, 0
  for _, v in ipairs(layer) do
    local mine = {}
    for _, w in ipairs(below[v]) do
      for _, other in ipairs(ends) do
        count = count + (other > at[w] and 1 or 0)
      end
      mine[#mine + 1] = at[w]
    end
    for _, x in ipairs(mine) do
      ends[#ends + 1] = x
    end
  end
  return count
end


local function crossings(layers, below)
  local at, count = positions(layers), 0
  for _, layer in ipairs(layers) do
    count = count + layer_crossings(layer, below, at)
  end
  return count
end


-- Returns the median position of the nodes in a list.
local function middle(list, at)
  local found = {}
  for i, u in ipairs(list) do
    found[i] = at[u]
  end
  table.sort(found)
  local half = math.floor((#found + 1) / 2)
  return #found % 2 == 1 and found[half] or (found[half] + found[half + 1]) / 2
end


-- Sorts a layer by the median of each node's neighbours; nodes without neighbours keep their
-- positions.
local function sort_layer(layer, near, at)
  local key = {}
  for i, v in ipairs(layer) do
    key[v] = #near[v] > 0 and middle(near[v], at) or i
  end
  table.sort(layer, function(a, b)
    if key[a] ~= key[b] then
      return key[a] < key[b]
    end
    return at[a] < at[b]
  end)
  for i, v in ipairs(layer) do
    at[v] = i
  end
end


local function copy_layers(layers)
  local copy = {}
  for r, layer in ipairs(layers) do
    copy[r] = tables.copy(layer)
  end
  return copy
end


-- Returns the order of layers with the fewest crossings that the sweeps reach.
local function order_layers(layers, above, below)
  local best, fewest = copy_layers(layers), crossings(layers, below)
  for sweep = 1, SWEEPS do
    if fewest == 0 then
      break
    end
    local at, down = positions(layers), sweep % 2 == 1
    for k = 2, #layers do
      sort_layer(layers[down and k or #layers + 1 - k], down and above or below, at)
    end
    local count = crossings(layers, below)
    if count < fewest then
      best, fewest = copy_layers(layers), count
    end
  end
  return best
end


-- Places ------------------------------------------------------------------------------------------

-- Returns the edges that cross a piece between two joints. They are not aligned, so that long edges
-- stay straight.
local function conflicts(layers, above, at, boxes)
  local bad = {}
  for r = 2, #layers do
    local inner = {}                             -- of this layer, below joints
    for _, v in ipairs(layers[r]) do
      if v > boxes and above[v][1] > boxes then
        inner[#inner + 1] = { at[above[v][1]], at[v], v }
      end
    end
    for _, v in ipairs(layers[r]) do
      for _, u in ipairs(above[v]) do
        for _, piece in ipairs(inner) do
          if piece[3] ~= v and (at[u] - piece[1]) * (at[v] - piece[2]) < 0 then
            bad[u .. " " .. v], bad[v .. " " .. u] = true, true
          end
        end
      end
    end
  end
  return bad
end


-- Returns blocks of nodes that get the same x: root[v] is the first node of v's block.
local function align(layers, near, bad)
  local at, root, taken = positions(layers), {}, {}
  for _, layer in ipairs(layers) do
    local reached = 0
    for _, v in ipairs(layer) do
      root[v] = v
      local list = tables.copy(near[v])
      table.sort(list, function(a, b) return at[a] < at[b] end)
      for m = math.floor((#list + 1) / 2), math.ceil((#list + 1) / 2) do
        local u = list[m]
        if u and root[v] == v and not taken[u] and at[u] > reached and not bad[u .. " " .. v] then
          root[v], taken[u], reached = root[u], true, at[u]
        end
      end
    end
  end
  return root
end


-- Returns, for each block, the blocks to its left and to its right, with the distance of the
-- centres.
local function block_order(layers, root, widths)
  local left, right, roots = {}, {}, {}
  for _, layer in ipairs(layers) do
    for i, v in ipairs(layer) do
      local b, a = root[v], layer[i - 1]
      if not left[b] then
        left[b], right[b], roots[#roots + 1] = {}, {}, b
      end
      if a then
        local distance = (widths[a] + widths[v]) / 2 + GAP
        table.insert(left[b], { root[a], distance })
        table.insert(right[root[a]], { b, distance })
      end
    end
  end
  return left, right, roots
end


-- Returns the blocks in an order in which each comes after those to its left.
local function sorted_blocks(left, roots)
  local list, state = {}, {}
  for _, start in ipairs(roots) do
    local stack = { start }
    while #stack > 0 do
      local b = stack[#stack]
      if state[b] == nil then
        state[b] = "open"
        for _, pair in ipairs(left[b]) do
          if state[pair[1]] == nil then
            stack[#stack + 1] = pair[1]
          end
        end
      else
        if state[b] == "open" then
          state[b], list[#list + 1] = "done", b
        end
        stack[#stack] = nil
      end
    end
  end
  return list
end


-- Places blocks as far left as possible, then each as far right as its right neighbours allow;
-- returns the x of each node.
local function compact(layers, root, widths)
  local left, right, roots = block_order(layers, root, widths)
  local list, x = sorted_blocks(left, roots), {}
  for _, b in ipairs(list) do
    x[b] = 0
    for _, pair in ipairs(left[b]) do
      x[b] = math.max(x[b], x[pair[1]] + pair[2])
    end
  end
  for i = #list, 1, -1 do
    local b, limit = list[i], math.huge
    for _, pair in ipairs(right[list[i]]) do
      limit = math.min(limit, x[pair[1]] - pair[2])
    end
    x[b] = limit < math.huge and math.max(x[b], limit) or x[b]
  end
  local x_of = {}
  for _, layer in ipairs(layers) do
    for _, v in ipairs(layer) do
      x_of[v] = x[root[v]]
    end
  end
  return x_of
end


-- Returns layers in reversed order, with reversed nodes, or both.
local function turned(layers, upwards, leftwards)
  local list = upwards and tables.reversed(layers) or tables.copy(layers)
  for r = 1, leftwards and #list or 0 do
    list[r] = tables.reversed(list[r])
  end
  return list
end


-- Returns the left and the right end of all boxes.
local function extent(x_of, widths)
  local low, high = math.huge, -math.huge
  for v, x in pairs(x_of) do
    low, high = math.min(low, x - widths[v] / 2), math.max(high, x + widths[v] / 2)
  end
  return low, high
end


-- Shifts the alternatives to the narrowest one: those packed to the left are aligned at their left
-- ends, the others at their right ends.
local function line_up(alternatives, widths)
  local low, high, narrowest = {}, {}, 1
  for i, x_of in ipairs(alternatives) do
    low[i], high[i] = extent(x_of, widths)
    if high[i] - low[i] < high[narrowest] - low[narrowest] then
      narrowest = i
    end
  end
  for i, x_of in ipairs(alternatives) do
    local shift = i % 2 == 1 and low[narrowest] - low[i] or high[narrowest] - high[i]
    for v, x in pairs(x_of) do
      x_of[v] = x + shift
    end
  end
end


-- Returns the x of the centre of each node, and the width of the drawing.
local function centres(layers, above, below, widths, boxes)
  local bad, alternatives = conflicts(layers, above, positions(layers), boxes), {}
  for _, upwards in ipairs{ false, true } do
    for _, leftwards in ipairs{ false, true } do
      local view = turned(layers, upwards, leftwards)
      local x_of = compact(view, align(view, upwards and below or above, bad), widths)
      for v, x in pairs(x_of) do
        x_of[v] = leftwards and -x or x
      end
      alternatives[#alternatives + 1] = x_of
    end
  end
  line_up(alternatives, widths)
  local x = {}
  for v = 1, #widths do
    local four = { alternatives[1][v], alternatives[2][v], alternatives[3][v], alternatives[4][v] }
    table.sort(four)
    x[v] = (four[2] + four[3]) / 2
  end
  local low, high = extent(x, widths)
  for v = 1, #x do
    x[v] = x[v] - low
  end
  return x, high - low
end


-- Routes ------------------------------------------------------------------------------------------

-- Returns the distance from a box's centre at which each of its edges meets it; edges are spread in
-- the order of their other ends.
local function ports(count, chains, x, widths, own, other)
  local by_box, shift = {}, {}
  for i, chain in ipairs(chains) do
    local v = chain[own(chain)]
    by_box[v] = by_box[v] or {}
    table.insert(by_box[v], i)
  end
  for v = 1, count do
    local list = by_box[v] or {}
    table.sort(list, function(a, b)
      local xa, xb = x[chains[a][other(chains[a])]], x[chains[b][other(chains[b])]]
      if xa ~= xb then
        return xa < xb
      end
      return a < b
    end)
    local step = math.min(PORT, widths[v] * 0.7 / #list)
    for k, i in ipairs(list) do
      shift[i] = (k - (#list + 1) / 2) * step
    end
  end
  return shift
end


-- Returns the points of each edge from box to box.
local function routes(boxes, chains, x, y, widths, height)
  local leave = ports(boxes, chains, x, widths, function() return 1 end, function() return 2 end)
  local reach = ports(boxes, chains, x, widths, function(c)
    return #c
  end, function(c) return #c - 1 end)
  local list = {}
  for i, chain in ipairs(chains) do
    local first, last = chain[1], chain[#chain]
    local points = { { x[first] + leave[i], y[first] + height / 2 } }
    for k = 2, #chain - 1 do                             -- vertical within a layer
      points[#points + 1] = { x[chain[k]], y[chain[k]] - height / 2 }
      points[#points + 1] = { x[chain[k]], y[chain[k]] + height / 2 }
    end
    points[#points + 1] = { x[last] + reach[i], y[last] - height / 2 }
    list[i] = points
  end
  return list
end


--- Computes the layout of a graph.
-- @tparam table graph widths (pixels of each box), height (of every box), edges ({from, to}, from <
--   to), sides (optional: pixels that each box needs on either side)
-- @treturn table x, y (centres), routes (points of each edge), width, height
function layout.plan(graph)
  local boxes = #graph.widths
  local above, below = neighbours(boxes, graph.edges)
  local rank = ranks(boxes, above, below)
  local short, chains, total = split_edges(boxes, graph.edges, rank)
  local widths, sides, y = {}, graph.sides or {}, {}
  for v = 1, total do
    widths[v] = v > boxes and JOINT or graph.widths[v] + 2 * (sides[v] or 0)
  end
  above, below = neighbours(total, short)
  local layers = order_layers(first_layers(total, rank, below), above, below)
  local x, width = centres(layers, above, below, widths, boxes)
  for v = 1, total do
    y[v] = (rank[v] - 1) * (graph.height + RANK_GAP) + graph.height / 2
  end
  return { x = x, y = y, width = math.max(width, 0), height = #layers * (graph.height + RANK_GAP)
    - RANK_GAP, routes = routes(boxes, chains, x, y, graph.widths, graph.height) }
end


return layout
