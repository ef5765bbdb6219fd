package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bill of this very test has all modules that the linker put in.
func TestBill(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "bill.cdx.json")
	require.NoError(t, run(program, file))
	content, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(content, cdx.BOMFileFormatJSON).Decode(&bom))

	have, urls := map[string]string{}, map[string]bool{}
	for _, c := range *bom.Components {
		have[c.Name], urls[c.PackageURL] = c.Version, true
	}
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	assert.Len(t, have, len(info.Deps)+1)
	for _, module := range info.Deps {
		assert.Equal(t, module.Version, have[module.Path], module.Path)
	}
	assert.Equal(t, runtime.Version(), have["std"])
	const library = "github.com/CycloneDX/cyclonedx-go"
	assert.True(t, urls["pkg:golang/"+library+"@"+have[library]])
	assert.Equal(t, cdx.ComponentTypeApplication, bom.Metadata.Component.Type)
	require.Len(t, *bom.Dependencies, 1)
	assert.Len(t, *(*bom.Dependencies)[0].Dependencies, len(have))
}

func TestReplacedModules(t *testing.T) {
	c := component(&debug.Module{
		Path: "example.com/a", Version: "v1.0.0",
		Replace: &debug.Module{Path: "example.com/b", Version: "v2.0.0", Sum: "h1:x"},
	})
	assert.Equal(t, "pkg:golang/example.com/b@v2.0.0", c.PackageURL)
	assert.Equal(t, "h1:x", (*c.Properties)[0].Value)
	c = component(&debug.Module{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "./pkg/a"}})
	assert.Equal(t, "pkg:golang/example.com/a@v1.0.0", c.PackageURL, "a folder of the same repository")
}

func TestNoProgram(t *testing.T) {
	require.ErrorContains(t, run("main.go", filepath.Join(t.TempDir(), "x")), "main.go")
}
