#compdef tycho
# Completion of tycho(1) for zsh.

_tycho_scripts() {
  local -a names
  local line
  for line in ${(f)"$(_call_program scripts $words[1] --script 2>/dev/null)"}; do
    names+=("${line%% *}:${${line#* }## #}")
  done
  _describe script names
}

_arguments -S \
  '*-e[run a text; an expression is printed]:code:' \
  '-i[prompt after the script]' \
  '*-l[require a module first]:module:' \
  '--strict[undeclared globals are errors]' \
  '--plain[prompt without line editing and colours]' \
  '(- *)--version[version of program and interface]' \
  '(- *)--platform[processor, libraries, devices that were found]' \
  '--script[run a script that comes with Tycho]:script:_tycho_scripts' \
  '--inspect[what a file of a model or of arrays holds]:file:_files' \
  '--convert[write a file in another format]:file:_files:file:_files' \
  '--run[run a network]:model:_files' \
  '--top[what a running training does]:process:_pids' \
  '(- *)--help[list the options]' \
  '*:file:_files'
