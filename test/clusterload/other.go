package clusterload

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// other is a scheduler that is not ours.
type other struct {
	// name is that of the folder below test/ which pins its release, of its program in bin/, and of the target of make
	// that builds it.
	name string
	// module is what it is built from.
	module string
}

// start runs the scheduler, as its options say, until its log says that it places pods. It ends with its control plane.
func (o other) start(ctx context.Context, cp *controlplane.ControlPlane, ready string,
	options controlplane.ProcessOptions,
) (*controlplane.Process, error) {
	path, err := program(o.name, o.name)
	if err != nil {
		return nil, err
	}
	options.Path = path
	options.LogFile = filepath.Join(cp.LogDir(), options.Name+".log")
	options.Ready = LogSays(options.LogFile, ready)
	return cp.StartProcess(ctx, options)
}

// file reads a file of the module that the scheduler is built from.
func (o other) file(ctx context.Context, path ...string) ([]byte, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", o.module)
	list.Dir = filepath.Join(root, "test", o.name)
	dir, err := list.Output()
	if err == nil && strings.TrimSpace(string(dir)) == "" {
		err = fmt.Errorf("it is not downloaded; run 'make %s'", o.name)
	}
	if err != nil {
		return nil, fmt.Errorf("find the files of %s: %w", o.module, err)
	}
	return os.ReadFile(filepath.Join(append([]string{strings.TrimSpace(string(dir))}, path...)...))
}

// define creates the definition of a kind that the scheduler brings in a folder of its module, and waits until the API
// server serves that kind.
func (o other) define(ctx context.Context, cp *controlplane.ControlPlane, kind schema.GroupVersionKind,
	folder ...string,
) error {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	content, err := o.file(ctx, append(folder, kind.Group+"_"+plural.Resource+".yaml")...)
	if err != nil {
		return err
	}
	if err := cp.Apply(ctx, content, ""); err != nil {
		return err
	}
	return cp.AwaitServed(ctx, kind)
}
