"""Completion of commands, flags and their values in bash and zsh."""

from nccl_tf.errors import check_name
from nccl_tf.experiment.config.command_table import COMMANDS
from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.experiment.config.setting import Setting

SHELLS = ("bash", "zsh")

# bash ends a word at "=", zsh does not.
_SCRIPT = """\
_nccl_tf() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local flag="" prefix="" command=train names="" each
  if [[ $word == "=" ]]; then flag=$before; word=""
  elif [[ $before == "=" ]]; then flag="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [[ $word == --*=* ]]; then flag="${{word%%=*}}"; prefix="$flag="; word="${{word#*=}}"
  fi
  for each in "${{COMP_WORDS[@]:1}}"; do
    case $each in {commands}) command=$each; break;; esac
  done
  case $flag in
    "") case $command in
{flags}
      esac
      [[ $word == -* ]] || names="{words}";;
{values}
    *) COMPREPLY=( $(compgen -P "$prefix" -f -- "$word") ); return;;
  esac
  COMPREPLY=( $(compgen -P "$prefix" -W "$names" -- "$word") )
  [[ ${{COMPREPLY[0]}} != *= ]] || compopt -o nospace 2>/dev/null
}}
complete -F _nccl_tf nccl-tf run.py
"""


def completion(shell: str) -> str:
    """The script that completes `nccl-tf` and `run.py`: `eval "$(nccl-tf --completion=bash)"`.

    Raises:
        UserError: There is none for that shell.
    """
    check_name("--completion", shell, SHELLS)
    begin = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    flags = [
        f'        {name}) names="{" ".join(map(_word, command.flags()))}";;'
        for name, command in COMMANDS.items()
    ]
    values = [
        f'    --{row.name}) names="{" ".join(row.choices)}";;' for row in all_flags() if row.choices
    ]
    return begin + _SCRIPT.format(
        commands="|".join(COMMANDS),
        words=" ".join(COMMANDS),
        flags="\n".join(flags),
        values="\n".join(values),
    )


def _word(row: Setting) -> str:
    return f"--{row.name}" if row.kind == "bool" else f"--{row.name}="
