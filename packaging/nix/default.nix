# nix-build packaging/nix: libgosched from the checkout that this file is in.
{ pkgs ? import <nixpkgs> { } }:

pkgs.stdenv.mkDerivation {
  pname = "gosched";
  version = "1.1.0";
  src = pkgs.lib.cleanSource ../..;
  cargoDeps = pkgs.rustPlatform.importCargoLock { lockFile = ../../Cargo.lock; };
  nativeBuildInputs = [ pkgs.rustPlatform.cargoSetupHook pkgs.cargo pkgs.rustc pkgs.pkg-config ];
  buildInputs = [ pkgs.hwloc pkgs.udev ];
  postPatch = "patchShebangs lib tools bindings";
  makeFlags = [ "PREFIX=$(out)" ];
  # The library stays stripped as it is installed: gdb's script is in a section that strip would drop.
  dontStrip = true;
  meta = {
    description = "Go's scheduler as a C library";
    license = [ pkgs.lib.licenses.mit pkgs.lib.licenses.asl20 ];
    platforms = [ "x86_64-linux" "aarch64-linux" ];
  };
}
