package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// hint is a command to try, and what it is for.
type hint struct {
	command, what string
}

// hintIndent is in front of each line to be typed, and of no other: a program that runs these lines knows them by it.
const hintIndent = "  "

// printHints prints commands that can be taken as they are into a terminal in any folder, after two lines that say
// which cluster and which server they are about.
func (c *cluster) printHints(serverURL string, hints []hint) error {
	kubeconfig, err := c.cp.AdminKubeconfig()
	if err != nil {
		return err
	}
	c.out.line("")
	c.out.line("Try, in another terminal:")
	c.out.line("")
	for _, h := range append([]hint{
		{command: "export KUBECONFIG=" + quoted(kubeconfig)},
		{command: "export PATH=" + quoted(c.bin) + ":" + quoted(filepath.Join(c.bin, "controlplane")) +
			`:"$PATH"`, what: "kubectl and kubectl reserve"},
		{command: "URL=" + serverURL},
	}, hints...) {
		if h.what != "" {
			h.command = fmt.Sprintf("%-58s  # %s", h.command, h.what)
		}
		c.out.line("%s%s", hintIndent, h.command)
	}
	c.out.line("")
	return nil
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=+@%,", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
