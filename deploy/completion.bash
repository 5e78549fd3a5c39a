# bash completion for basalt(1): the tool itself knows its commands, and asks the
# daemon for names.
_basalt() {
	local cur=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT} words begun
	local before=${COMP_WORDS[COMP_CWORD - 1]}
	# To bash a word ends at '=', too, and that is one by itself.
	if [[ $cur == '=' ]]; then
		cur=''
	elif [[ $before == '=' ]]; then
		before=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	case $before in
	--socket | --chap-secret-file | --mutual-secret-file | --log | --config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	esac
	# To bash a word ends at ':', which is in portals.
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=('')
	begun=${words[-1]}
	mapfile -t COMPREPLY < <(basalt --complete "${words[@]:1}" 2>/dev/null)
	COMPREPLY=("${COMPREPLY[@]#"${begun%"${begun##*[:=]}"}"}")
	if [ ${#COMPREPLY[@]} -eq 0 ] && [[ $line =~ [[:space:]](disk[[:space:]]+add|config[[:space:]]+apply|support)[[:space:]] ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -F _basalt basalt
