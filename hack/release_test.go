// Package hack has no code. Its tests hold together what a release is made by: .goreleaser.yaml, .krew.yaml and the
// scripts here.
package hack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const tag = "v1.2.3"

// releaser is what counts here of .goreleaser.yaml.
type releaser struct {
	Builds []struct {
		ID, Main, Binary             string
		Goos, Goarch, Env, Tags      []string
		Flags, Ldflags               []string
		ModTimestamp, Hooks, Targets any
	}
	Archives []struct {
		ID           string
		IDs          []string
		NameTemplate string `json:"name_template"`
		Files        []any
	}
}

// plugin is what krew reads of a manifest.
type plugin struct {
	APIVersion, Kind string
	Metadata         map[string]string
	Spec             struct {
		Version, Homepage, ShortDescription, Description, Caveats string
		Platforms                                                 []struct {
			URI, Sha256, Bin string
			Selector         struct{ MatchLabels map[string]string }
		}
	}
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{".."}, path...)...))
	require.NoError(t, err)
	return string(content)
}

// fill fills in a template of either tool.
func fill(t *testing.T, text string, values map[string]any) string {
	t.Helper()
	// What krew-release-bot puts in place of an archive: where it is, and its checksum on a line of its own, as deep.
	archive := func(uri, tag string) (string, error) {
		var filled strings.Builder
		parsed, err := template.New("").Parse(uri)
		if err != nil {
			return "", err
		}
		err = parsed.Execute(&filled, map[string]string{"TagName": tag})
		return fmt.Sprintf("uri: %s\n    sha256: %s", filled.String(), strings.Repeat("0a", 32)), err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{"addURIAndSha": archive}).Option("missingkey=error").
		Parse(quoted(text))
	require.NoError(t, err)
	var filled strings.Builder
	require.NoError(t, parsed.Execute(&filled, values))
	return filled.String()
}

// quoted has the templates within the arguments of addURIAndSha survive the outer template.
func quoted(text string) string {
	return regexp.MustCompile(`addURIAndSha "([^"]*)"`).ReplaceAllString(text, "addURIAndSha `$1`")
}

func readReleaser(t *testing.T) *releaser {
	t.Helper()
	var r releaser
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, ".goreleaser.yaml")), &r))
	return &r
}

// krew takes the manifest, and finds the archives that goreleaser makes: those of all platforms, each once.
func TestKrewManifest(t *testing.T) {
	var p plugin
	require.NoError(t, yaml.UnmarshalStrict([]byte(fill(t, readFile(t, ".krew.yaml"), map[string]any{"TagName": tag})),
		&p))
	assert.Equal(t, "krew.googlecontainertools.github.com/v1alpha2", p.APIVersion)
	assert.Equal(t, "Plugin", p.Kind)
	assert.Regexp(t, `^[a-z0-9]+(-[a-z0-9]+)+$`, p.Metadata["name"], "krew wants lower case, and more than a verb")
	assert.NotRegexp(t, "kubectl|kube-", p.Metadata["name"])
	assert.Equal(t, tag, p.Spec.Version)
	assert.Regexp(t, `^\S[^\r\n]{1,48}[^.\s]$`, p.Spec.ShortDescription, "krew search shows 50 characters of one line")
	for _, text := range []string{p.Spec.Description, p.Spec.Caveats} {
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, len(line), 81, "terminals have 80 columns")
		}
	}
	require.Contains(t, readFile(t, "go.mod"), "module "+strings.TrimPrefix(p.Spec.Homepage, "https://")+"\n")

	want := map[string]string{} // archives by platform
	r := readReleaser(t)
	for _, a := range r.Archives {
		for _, b := range r.Builds {
			if a.ID != "kubectl-reserve" || b.ID != a.IDs[0] {
				continue
			}
			for _, system := range b.Goos {
				for _, processor := range b.Goarch {
					want[system+"/"+processor] = p.Spec.Homepage + "/releases/download/" + tag + "/" +
						fill(t, a.NameTemplate, map[string]any{"Tag": tag, "Os": system, "Arch": processor}) + ".tar.gz"
				}
			}
		}
	}
	require.Len(t, want, 4)
	have := map[string]string{}
	for _, platform := range p.Spec.Platforms {
		assert.Equal(t, "kubectl-reserve", platform.Bin)
		assert.Regexp(t, "^[a-f0-9]{64}$", platform.Sha256)
		labels := platform.Selector.MatchLabels
		assert.Len(t, labels, 2)
		have[labels["os"]+"/"+labels["arch"]] = platform.URI
	}
	assert.Len(t, p.Spec.Platforms, len(have), "a platform is there twice")
	assert.Equal(t, want, have)
}

// goreleaser builds the programs as the Makefile and the Dockerfile do.
func TestReleaseIsBuiltAlike(t *testing.T) {
	makefile, dockerfile, version := readFile(t, "Makefile"), readFile(t, "Dockerfile"),
		readFile(t, "pkg", "version", "version.go")
	platforms := regexp.MustCompile(`(?m)^PLATFORMS := (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, platforms)
	r := readReleaser(t)
	require.Len(t, r.Builds, 2)
	for _, b := range r.Builds {
		assert.DirExists(t, filepath.Join("..", b.Main))
		assert.Equal(t, "./cmd/"+b.Binary, b.Main)
		assert.Equal(t, []string{"CGO_ENABLED=0"}, b.Env)
		var built []string
		for _, system := range b.Goos {
			for _, processor := range b.Goarch {
				built = append(built, system+"/"+processor)
			}
		}
		assert.Equal(t, strings.Fields(platforms[1]), built)
		stamped := strings.Join(b.Ldflags, " ")
		for _, name := range []string{"gitVersion", "gitCommit", "buildDate"} {
			stamp := regexp.MustCompile(`-X (\S+/pkg/version)\.` + name + `=`)
			require.Regexp(t, stamp, stamped)
			assert.Contains(t, dockerfile, stamp.FindStringSubmatch(stamped)[0])
			assert.Regexp(t, `(?m)^\t`+name+`\s+string$`, version)
		}
		if b.ID == "globalreserve" {
			assert.Contains(t, makefile, "-tags "+b.Tags[0]+"\n")
			assert.Contains(t, dockerfile, "-tags "+b.Tags[0]+" ")
		}
	}
	for _, a := range r.Archives {
		for _, file := range a.Files {
			if from, ok := file.(map[string]any); ok {
				file = from["src"]
			}
			assert.FileExists(t, filepath.Join("..", fmt.Sprint(file)))
		}
	}
}

// kind-up.sh asks kind, docker and kubectl, which are not here, for what is there: the files that it applies, and the
// image by the name that the manifests have.
func TestKindUp(t *testing.T) {
	programs, log := fakes(t, "kind", "docker", "kubectl", "go", "make")
	root := t.TempDir() // with a server that was built
	require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "bin", "globalreserve"), []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../manifests")))
	require.NoError(t, os.CopyFS(filepath.Join(root, "hack"), os.DirFS(".")))
	run := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "hack", "kind-up.sh"), "try")
	run.Env = append(os.Environ(), "PATH="+programs+":/usr/bin:/bin")
	said, err := run.CombinedOutput()
	require.NoError(t, err, "%s", said)

	asked, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Contains(t, string(asked), "make image IMAGE=globalreserve:v0.1.0\n")
	assert.Contains(t, string(asked), "kind load docker-image globalreserve:v0.1.0 --name try\n")
	assert.Contains(t, readFile(t, "manifests", "base", "deployment.yaml"), "image: globalreserve:v0.1.0\n")
	files := 0
	for line := range strings.Lines(string(asked)) {
		if strings.HasPrefix(line, "kubectl") {
			assert.Contains(t, line, "--context kind-try ", "another cluster is asked")
		}
		for _, path := range regexp.MustCompile(`manifests/\S+`).FindAllString(line, -1) {
			_, err := os.Stat(filepath.Join("..", path))
			assert.NoError(t, err)
			files++
		}
	}
	assert.Equal(t, 2, files)
}

// fakes are programs that write down how they were called, in a folder of their own, and the file that they write to.
func fakes(t *testing.T, names ...string) (folder, log string) {
	t.Helper()
	folder, log = t.TempDir(), filepath.Join(t.TempDir(), "log")
	for _, name := range names {
		script := "#!/bin/sh\necho " + name + ` "$@" >>'` + log + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(script), 0o700))
	}
	return folder, log
}

// `make image-multiarch` has docker build an image of the Dockerfile that has the stage, for both processors.
func TestImageForTwoProcessors(t *testing.T) {
	programs, log := fakes(t, "docker")
	run := exec.CommandContext(t.Context(), "make", "image-multiarch", "TARGET=scheduler",
		"IMAGE=registry.example.com/a:b", "IMAGE_OUTPUT=--push")
	run.Dir, run.Env = "..", append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	said, err := run.CombinedOutput()
	require.NoError(t, err, "%s", said)
	asked, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=\S+ `+
		`--build-arg COMMIT=\S* --build-arg BUILD_DATE=\S* -t registry.example.com/a:b --target scheduler --push \.$`,
		string(asked))
	assert.Regexp(t, `(?m)^FROM \S+ AS scheduler$`, readFile(t, "Dockerfile"))
}
