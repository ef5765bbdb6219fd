package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/globalreserve/globalreserve/pkg/app/command"
	"github.com/globalreserve/globalreserve/pkg/kubectl"
)

func serverPage() (string, error) {
	cmd := command.New()
	var page strings.Builder
	page.WriteString("# globalreserve\n\nThe server, and what else its program does. ")
	page.WriteString("[The policy file](../policy.md) has what may change while it runs.\n\n## Flags of the server\n\n")
	page.WriteString(flags(cmd.Flags()))
	err := pages(&page, cmd.Commands())
	return page.String(), err
}

func pluginPage() (string, error) {
	cmd := kubectl.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: io.Discard})
	var page strings.Builder
	page.WriteString("# kubectl reserve\n\n[What it is for and what it needs](../kubectl.md).\n\n```\n" + cmd.Long +
		"\n```\n\n")
	page.WriteString("## Flags of every command\n\n" + flags(cmd.PersistentFlags()))
	err := pages(&page, cmd.Commands())
	return page.String(), err
}

// flags is a table of flags.
func flags(set *pflag.FlagSet) string {
	var text strings.Builder
	text.WriteString(table("flag", "default", "meaning"))
	set.VisitAll(func(f *pflag.Flag) {
		name, value := "`--"+f.Name+"`", "`"+f.DefValue+"`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		if f.DefValue == "" || f.DefValue == "[]" {
			value = "none"
		}
		text.WriteString(row(name, value, cell(f.Usage)))
	})
	return text.String()
}

// pages writes commands and those below them, without the flags that all have and links to pages that there are not.
func pages(to *strings.Builder, commands []*cobra.Command) error {
	for _, cmd := range commands {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		cmd.DisableAutoGenTag = true
		var text bytes.Buffer
		if err := doc.GenMarkdown(cmd, &text); err != nil {
			return err
		}
		section, _, _ := strings.Cut(text.String(), "### SEE ALSO")
		section, _, _ = strings.Cut(section, "### Options inherited from parent commands")
		to.WriteString("\n" + section)
		if err := pages(to, cmd.Commands()); err != nil {
			return err
		}
	}
	return nil
}
