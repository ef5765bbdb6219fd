//go:build e2e || soak

package ui

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// soon is how long the page may take for what has to come.
var soon = controlplane.Patience

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) {
	if _, missing := testbed.Browser(); missing != "" {
		fmt.Println("test/e2e/ui: LEFT OUT, the page is not looked at with a browser: " + missing)
		os.Exit(0)
	}
	os.Exit(controlplane.Run(m, &shared))
}

// browser is one page of a browser of its own.
type browser struct {
	t       *testing.T
	in      io.WriteCloser
	answers *bufio.Scanner
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	driver := exec.Command("node", "e2e/driver.mjs") // it ends with its input
	path, _ := testbed.Browser()
	driver.Dir, driver.Stderr = testbed.File(t, "web"), os.Stderr
	driver.Env = append(os.Environ(), "BROWSER="+path)
	in, err := driver.StdinPipe()
	require.NoError(t, err)
	out, err := driver.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, driver.Start())
	b := &browser{t: t, in: in, answers: bufio.NewScanner(out)}
	b.answers.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		_ = in.Close()
		_ = driver.Wait()
	})
	require.True(t, b.answers.Scan(), "the browser did not start")
	return b
}

type command struct {
	Do       string `json:"do"`
	URL      string `json:"url,omitempty"`
	Script   string `json:"script,omitempty"`
	Within   int64  `json:"within,omitempty"`
	Selector string `json:"selector,omitempty"`
	Text     string `json:"text,omitempty"`
	Path     string `json:"path,omitempty"`
	X        string `json:"x,omitempty"` // of a click, in pixels from the corner
	Y        string `json:"y,omitempty"`
}

// try sends a command and reads its answer.
func (b *browser) try(c command, answer any) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return err
	}
	if !b.answers.Scan() {
		return fmt.Errorf("the driver ended: %w", b.answers.Err())
	}
	var reply struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal(b.answers.Bytes(), &reply); err != nil {
		return err
	}
	if reply.Error != "" {
		return fmt.Errorf("%s %s%s: %s", c.Do, c.Selector, c.Script, reply.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(reply.Value, answer)
}

func (b *browser) do(c command, answer any) {
	b.t.Helper()
	if err := b.try(c, answer); err != nil {
		var text string
		_ = b.try(command{Do: "eval", Script: "document.body.innerText"}, &text)
		require.NoError(b.t, err, "the page shows:\n%s", text)
	}
}

func (b *browser) open(url string) { b.t.Helper(); b.do(command{Do: "open", URL: url}, nil) }
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(command{Do: "click", Selector: selector}, nil)
}

// wait waits until a text of JavaScript is true, and returns how long that took.
func (b *browser) wait(within time.Duration, script string, args ...any) time.Duration {
	b.t.Helper()
	var took float64
	b.do(command{Do: "wait", Script: fmt.Sprintf(script, args...), Within: within.Milliseconds()}, &took)
	return time.Duration(took * float64(time.Millisecond))
}

// shows waits until the page has a text.
func (b *browser) shows(text string) time.Duration {
	b.t.Helper()
	return b.wait(soon, "document.body.innerText.includes(%q)", text)
}

func (b *browser) text() (text string) {
	b.t.Helper()
	b.do(command{Do: "eval", Script: "document.body.innerText"}, &text)
	return text
}

// fine fails where the page has told of an error, is wider than the window, or is hard to use for some.
func (b *browser) fine(where string) {
	b.t.Helper()
	var errs, violations []string
	b.do(command{Do: "errors"}, &errs)
	assert.Empty(b.t, errs, where)
	var beyond int
	b.do(command{Do: "eval", Script: "document.documentElement.scrollWidth - innerWidth"}, &beyond)
	assert.LessOrEqual(b.t, beyond, 0, "%s is wider than the window", where)
	for _, scheme := range []string{"dark", "light"} {
		b.do(command{Do: "scheme", Text: scheme}, nil)
		b.do(command{Do: "axe"}, &violations)
		assert.Empty(b.t, violations, "%s, %s", where, scheme)
	}
}

// picture takes one for the documents, where they are wanted.
func (b *browser) picture(name string) {
	b.t.Helper()
	if folder := os.Getenv("PICTURES"); folder != "" {
		b.do(command{Do: "screenshot", Path: filepath.Join(folder, name+".png")}, nil)
	}
}
