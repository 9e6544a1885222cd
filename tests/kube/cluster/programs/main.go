// Command kube is every program of a Kubernetes test cluster in one binary.
//
//	kube apiserver|controller-manager|scheduler|kubelet|proxy|kubectl <flags...>
//
// A link named kubectl that points at the binary behaves as kubectl.
// The programs are Kubernetes' own packages, used as an ordinary Go dependency:
// nothing is changed, only linked together, so they share one file (139 MB) and one build.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as upstream
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name, arguments := filepath.Base(os.Args[0]), os.Args[1:]
	if name != "kubectl" {
		if len(arguments) == 0 {
			usage()
		}
		name, arguments = arguments[0], arguments[1:]
	}
	os.Args = append([]string{name}, arguments...) // cobra and pflag read os.Args

	if name == "kubectl" {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err) // exits with kubectl's own status and message
		}
		return
	}
	os.Exit(cli.Run(daemon(name)))
}

func daemon(name string) *cobra.Command {
	switch name {
	case "apiserver":
		return apiserver.NewAPIServerCommand()
	case "controller-manager":
		return controllers.NewControllerManagerCommand()
	case "scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "proxy":
		return proxy.NewProxyCommand()
	}
	usage()
	return nil
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kube apiserver|controller-manager|scheduler|kubelet|proxy|kubectl <flags...>")
	os.Exit(2)
}
