# bash completion for basalt(1): the tool itself knows its commands.
_basalt() {
	local cur words=() i w skip=no
	cur=${COMP_WORDS[COMP_CWORD]}
	# Global options before the command are no part of it.
	for ((i = 1; i < COMP_CWORD; i++)); do
		w=${COMP_WORDS[i]}
		if [ $skip = yes ]; then
			skip=no
			continue
		fi
		if [ ${#words[@]} -eq 0 ]; then
			case $w in
			--socket) skip=yes; continue ;;
			-*) continue ;;
			esac
		fi
		words+=("$w")
	done
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--socket | --chap-secret-file | --mutual-secret-file)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--method)
		mapfile -t COMPREPLY < <(compgen -W 'mirror raid5 raid6' -- "$cur")
		return
		;;
	--transport)
		mapfile -t COMPREPLY < <(compgen -W 'tcp iser both' -- "$cur")
		return
		;;
	--block-size)
		mapfile -t COMPREPLY < <(compgen -W '512 4096' -- "$cur")
		return
		;;
	esac
	mapfile -t COMPREPLY < <(basalt --complete "${words[@]}" "$cur" 2>/dev/null)
	if [ ${#COMPREPLY[@]} -eq 0 ] && [ "${words[*]:0:2}" = 'disk add' ]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}
complete -F _basalt basalt
