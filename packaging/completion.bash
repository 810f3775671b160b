# Completion of quire and quire-bench for bash (and by _quire for zsh): commands, flags and their words as --help prints them.
_quire() {
    local current=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]} command=("$1") words=
    if [ "${1##*/}" = quire ] && [ "$COMP_CWORD" = 1 ]; then
        words=$("$1" --help 2>/dev/null | sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p')
    else
        [ "${1##*/}" != quire ] || command+=("${COMP_WORDS[1]}")
        if [[ $last == --* ]]; then
            words=$("${command[@]}" --help 2>/dev/null | sed -n "s/^  \(-., \)\{0,1\}$last \([a-z0-9_-]*|[a-z0-9_|-]*\).*/\2/p" | tr '|' ' ')
        elif [[ $current == -* ]]; then
            words=$("${command[@]}" --help 2>/dev/null | sed -n 's/^  \(-., \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o bashdefault -o default -F _quire quire quire-bench
