-- Ranks on two hosts: network namespaces that a wire of a given rate joins. Root alone can make
-- them, with iproute2, and enter them, but not below a root that is no mount (chroot); elsewhere
-- the specs are pending.

local folder = require "spec.support.folder"
local mpi = require "spec.support.mpi"
local ranks = require "spec.support.ranks"
local shell = require "spec.support.shell"

local function missing()
  local name = "tycho_spec_" .. tostring({}):match("%w+$")
  local output, status = shell.run(("command -v tc && ip netns add %s && (ip netns exec %s sh -c \z
    'ip link add name ty1 type veth peer name ty2 && \z
    tc qdisc add dev ty1 root tbf rate 1gbit burst 1mb latency 50ms'; s=$?; ip netns del %s; exit $s)"):format(name, name, name))
  return status ~= 0 and "no network namespaces: " .. output:gsub("%s+$", "") or nil
end

describe("ranks on two hosts, two on each,", function()
  local on_hosts = mpi.it(it, pending, missing)

  local function run(settings, rate, words)
    local output, status = shell.run(("TYCHO_THREADS=1 %s timeout 120 scripts/dev/two_hosts.sh \z
      %s 2 %s spec/support/ranks.lua %s"):format(settings, rate, shell.program, words))
    assert.equal(0, status, output)
    return output
  end

  local function alone(case, path)
    local output, status = shell.run(("TYCHO_THREADS=1 %s spec/support/ranks.lua %s one 4 save %s")
      :format(shell.program, case, path))
    assert.equal(0, status, output)
    return output
  end

  local function check_same(case, rate)
    folder.with(function(path)
      local want = alone(case, path .. "/one")
      local output = run("TYCHO_COMM_PER_HOST=1", rate, case)
      assert.truthy(output:find(want, 1, true), output)
    end)
  end

  local function check_near(case, rate)
    folder.with(function(path)
      local one, both = path .. "/one", path .. "/both"
      alone(case, one)
      run("", rate, case .. " save " .. both)
      ranks.check_near(one, both)
    end)
  end

  on_hosts("train as one process does, in the order of ranks: lenet", function()
    check_same("lenet", "1gbit")
  end)

  on_hosts("train nearly as one process does, inside the hosts first: resnet", function()
    check_near("resnet", "1gbit")
  end)

  for _, rate in ipairs{ "1gbit", "100mbit" } do
    for _, case in ipairs{ "lenet", "lstm", "resnet" } do
      on_hosts(("train as one process does: %s, %s #slow"):format(case, rate), function()
        check_same(case, rate)
        check_near(case, rate)
      end)
    end
  end

  on_hosts("get messages of all types and sizes right #slow", function()
    local output = run("", "1gbit", "messages 200")
    assert.truthy(output:find("200 messages\n", 1, true), output)
  end)
end)
