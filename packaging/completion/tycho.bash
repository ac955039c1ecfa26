# Completion of tycho(1) for bash.

_tycho()
{
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local options="-e -i -l - --strict --plain --version --platform --script --inspect --convert
    --run --top --help"
  COMPREPLY=()
  if [ "$before" = --script ]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" --script 2>/dev/null | cut -d ' ' -f 1)" -- "$word"))
  elif [ "$before" != -e ] && [ "$before" != -l ]; then
    case $word in
      -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    esac
  fi
}

complete -o default -F _tycho tycho
