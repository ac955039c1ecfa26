#!/bin/sh
# Installs the Debian packages of /root where nothing else is, and runs the program, a plain luajit,
# a program in C, and, where Debian has them, OpenResty's LuaJIT and nginx with its workers. As root
# in a bare system: scripts/dev/chroot.sh calls it there.
set -eu
export DEBIAN_FRONTEND=noninteractive
get="apt-get install -y --no-install-recommends"
work=$(mktemp -d)
chmod 755 "$work"
PORT=18099

apt-get update -qq
$get /root/*.deb gcc libc6-dev pkg-config
cd /
tycho -e 'ty.nd.ones{2, 3}:sum():asscalar()'
tycho --script train_mnist --quick
tycho -e 'tostring(ty.gluon.nn.Dense(2))'
luajit -e 'print(require("tycho").nd.ones(2):sum():asscalar())'
cat > "$work/a.c" <<'END'
#include <stdio.h>
#include <tycho.h>
int main(void) { puts(ty_version()); }
END
cc -o "$work/a" "$work/a.c" $(pkg-config --cflags --libs tycho)
"$work/a"
test -s /usr/share/doc/tycho-doc/html/index.html

# workers MASTER: what a worker of nginx answers whose master ran MASTER, in Lua
workers() {
  cat > "$work/nginx.conf" <<END
include /etc/nginx/modules-enabled/*.conf;
pid $work/nginx.pid;
error_log $work/nginx.log;
worker_processes 2;
events {}
http {
  access_log off;
  init_by_lua_block { local ty = require "tycho"; $1 }
  init_worker_by_lua_block {
    local ty = require "tycho"
    ok, exe = pcall(function()
      local net = ty.sym.FullyConnected{data = ty.sym.Variable("data"), num_hidden = 1,
        no_bias = true, name = "fc"}
      local exe = net:simple_bind{ctx = ty.cpu(), data = {1, 3}, grad_req = "null"}
      exe.arg_dict.fc_weight[":"] = 2
      return exe
    end)
  }
  server {
    listen 127.0.0.1:$PORT;
    location / { content_by_lua_block {
      local ty = require "tycho"
      if not ok then
        return ngx.say("refused: ", tostring(exe))
      end
      exe:forward{data = ty.nd.ones{1, 3}}
      ngx.say("worker ", exe.outputs[1]:totable()[1][1])
    } }
  }
}
END
  nginx -c "$work/nginx.conf"
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    bash -c "exec 3<> /dev/tcp/127.0.0.1/$PORT && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3" \
      2> /dev/null && break
    sleep 1
  done
  cat "$work/nginx.log"
  nginx -c "$work/nginx.conf" -s stop
  while [ -e "$work/nginx.pid" ]; do sleep 1; done
}

if apt-get install -s luajit2 > /dev/null 2>&1; then
  $get luajit2
  luajit -v
  luajit -e 'print(require("tycho").nd.ones(3):sum():asscalar())'
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d       # no service is started
  chmod +x /usr/sbin/policy-rc.d
  $get nginx libnginx-mod-http-lua
  workers ''
  workers 'ty.nd.ones(2):sum():asscalar()'
fi
rm -r "$work"
