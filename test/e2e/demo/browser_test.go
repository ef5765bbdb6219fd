//go:build e2e

package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// requirePage has a browser look at the page, flip its switches and see overcommit rise and go. Where there is none, it
// says so in one line.
func requirePage(t *testing.T, url string) {
	t.Helper()
	web := testbed.File(t, "web")
	browser := ""
	for _, name := range []string{os.Getenv("BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	_, driver := os.Stat(filepath.Join(web, "node_modules", "playwright-core"))
	_, node := exec.LookPath("node")
	if browser == "" || driver != nil || node != nil {
		t.Log("LEFT OUT: no browser looks at the demo's page; run make web-tools")
		return
	}
	look := exec.CommandContext(t.Context(), "node", "e2e/demo.mjs", url)
	look.Dir, look.Env = web, append(os.Environ(), "BROWSER="+browser)
	output, err := look.CombinedOutput()
	require.NoError(t, err, "%s", output)
}
