# Completion of tycho(1) for fish.

complete -c tycho -s e -x -d 'Run a text; an expression is printed'
complete -c tycho -s i -d 'Prompt after the script'
complete -c tycho -s l -x -d 'Require a module first'
complete -c tycho -l strict -d 'Undeclared globals are errors'
complete -c tycho -l plain -d 'Prompt without line editing and colours'
complete -c tycho -l version -d 'Version of program and interface'
complete -c tycho -l platform -d 'Processor, libraries, devices that were found'
complete -c tycho -l script -x -d 'Run a script that comes with Tycho' \
  -a "(tycho --script 2>/dev/null | string replace -r '\s+' '\t')"
complete -c tycho -l inspect -r -d 'What a file of a model or of arrays holds'
complete -c tycho -l convert -r -d 'Write a file in another format'
complete -c tycho -l run -r -d 'Run a network'
complete -c tycho -l top -x -d 'What a running training does'
complete -c tycho -l help -d 'List the options'
