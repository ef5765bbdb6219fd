// Package main is sbom, which writes what a Go program is made of, as a bill of materials in CycloneDX: sbom PROGRAM
// FILE.
//
// It reads what the linker has written into the program: the modules that are in it, each with the hash of go.sum, and
// not those that go.mod names for tests and other programs. It reads no network, so that it says the same of a program
// at any time.
package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program, file string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := write(out, info); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// write writes the bill of a program that was built like this.
func write(out io.Writer, info *debug.BuildInfo) error {
	bom := cdx.NewBOM()
	program := component(&info.Main)
	program.Type = cdx.ComponentTypeApplication
	program.Name = path.Base(info.Path)
	program.BOMRef = info.Path
	properties := make([]cdx.Property, 0, len(info.Settings))
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" || s.Key == "-tags" {
			properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	program.Properties = &properties
	bom.Metadata = &cdx.Metadata{Component: &program}

	toolchain := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: "std", Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}
	components, refs := []cdx.Component{toolchain}, []string{toolchain.BOMRef}
	for _, module := range info.Deps {
		c := component(module)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	encoder := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON)
	return encoder.SetPretty(true).Encode(bom)
}

// component is a module, or the one that is in its place. A folder of the repository in its place is the module itself.
func component(module *debug.Module) cdx.Component {
	if module.Replace != nil && module.Replace.Version != "" {
		module = module.Replace
	}
	url := "pkg:golang/" + module.Path + "@" + module.Version
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module.Path, Version: module.Version,
		PackageURL: url,
	}
	if module.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:module:sum", Value: module.Sum}}
	}
	return c
}
